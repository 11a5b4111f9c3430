//! Collective communication between processes: every rank of a group calls the same operation, and the library moves
//! and combines their data.
//!
//! One process makes a [`UniqueId`] and hands its bytes to the others; each then joins with its rank by
//! [`Communicator::init`] and calls the operations, in the same order on all ranks. Ranks are processes as a rule, but
//! may as well be threads:
//!
//! ```
//! use ccl::{Communicator, Config, Op, UniqueId};
//!
//! # fn main() -> Result<(), ccl::Error> {
//! let id = UniqueId::new()?;
//! let sums = std::thread::scope(|scope| {
//!     let ranks = (0..3).map(|rank| {
//!         let id = &id;
//!         scope.spawn(move || {
//!             let comm = Communicator::init(3, id, rank, &Config::default())?;
//!             let mut data = vec![rank as f32; 1000];
//!             comm.all_reduce_in_place(&mut data, Op::Sum)?;
//!             Ok(data)
//!         })
//!     });
//!     let ranks: Vec<_> = ranks.collect();
//!     ranks.into_iter().map(|rank| rank.join().unwrap()).collect::<ccl::Result<Vec<_>>>()
//! })?;
//! assert!(sums.iter().all(|data| data == &[0.0 + 1.0 + 2.0; 1000]));
//! # Ok(())
//! # }
//! ```
//!
//! Processes that mpirun, torchrun or srun started need no id: [`Communicator::init_env`].
//!
//! # Errors
//!
//! An [`Error`] says what was wrong, what was wanted and what to do. A wrong argument ([`Error::Invalid`],
//! [`Error::Usage`]) is found before anything is sent and does no harm. A rank that is lost, leaves, stays silent past
//! the deadline or calls something else fails the running or next call of *every* rank with the same [`Cause`], which
//! names the rank; the communicator is then closed.
//!
//! # From C
//!
//! The same library is `libccl.so` with `include/ccl.h`, whose functions and arguments follow NCCL's.
//!
//! # Logs
//!
//! The library tells what it does by [`tracing`](https://docs.rs/tracing) events with fields `rank` and `ranks`. In a
//! program that has not set a global subscriber before its first call here, the environment's `CCL_DEBUG` (`warn`, `info`,
//! `debug` or `trace`) sets one that writes lines to standard error, or to the file that `CCL_DEBUG_FILE` names (`%h`: the
//! host, `%p`: the process).
//!
//! Each rank keeps its last operations: [`Communicator::records`]. `CCL_FLIGHT_FILE` names a file to which they are appended when
//! the communicator fails, `CCL_TRACE_FILE` one for all operations, which Chrome's viewer shows. `ccl-perf status` looks into
//! running processes.
//!
//! # Features
//!
//! `cli` (on by default) is the programs `ccl-perf` and `ccl-topo`. Programs that use the library turn it off with
//! `default-features = false`. `cuda` (on by default) is buffers in the memory of CUDA devices: [`Communicator::on_cuda`].
//!
//! How it works inside is in the repository's `ARCHITECTURE.md`.

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!("ccl needs Linux with glibc on x86-64 or aarch64");

mod bootstrap;
mod comm;
#[cfg(feature = "cuda")]
mod cuda;
mod exec;
mod ffi;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod log;
mod mem;
mod net;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod perf;
mod plan;
mod record;
mod reduce;
mod sys;
#[doc(hidden)]
pub mod topo;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod topo_tool;
mod transport;
pub mod types;

/// What `benches/` measures below the public interface.
#[doc(hidden)]
pub mod bench_support {
    use crate::{
        mem::Region,
        sys::helpers::Helpers,
        types::{DType, Op},
    };

    pub use crate::{comm::bench::*, transport::bench::*};

    /// Threads that reduce together.
    #[derive(Debug)]
    pub struct Threads(Helpers);

    impl Threads {
        /// So many, the caller included.
        pub fn new(threads: usize) -> Self {
            Threads(Helpers::new(threads))
        }

        /// Sums two vectors of float32 tile by tile, each thread an equal part of each tile. They are made of whole tiles of
        /// `tile` bytes.
        pub fn sum(&self, tile: usize, sources: [&[u8]; 2], dst: &mut [u8]) {
            let (sources, dst, part) = (
                sources.map(Region::of),
                Region::of_mut(dst),
                tile / self.0.threads(),
            );
            for at in (0..dst.len()).step_by(tile) {
                self.0.share(self.0.threads(), &|k| {
                    let parts = sources.map(|source| source.part(at + k * part, part));
                    crate::reduce::reduce(
                        Op::Sum,
                        DType::Float32,
                        None,
                        &parts,
                        &dst.part(at + k * part, part),
                    );
                });
            }
        }
    }

    /// One pass of the reduction kernels over bytes, as of a rank that has all contributions where it averages.
    pub fn reduce<const K: usize>(op: Op, dtype: DType, sources: [&[u8]; K], dst: &mut [u8]) {
        let finish = (op == Op::Avg).then_some(K);
        crate::reduce::reduce(op, dtype, finish, &sources.map(Region::of), &Region::of_mut(dst));
    }
}

pub use bootstrap::UniqueId;
#[cfg(feature = "cuda")]
pub use comm::OnCuda;
pub use comm::{Begin, Communicator, Config, Message, Pending, Scope, Stream, algorithms, explain};
#[cfg(feature = "cuda")]
pub use cuda::{DeviceMemory, Stream as CudaStream};
pub use exec::Received;
pub use mem::SharedMemory;
pub use plan::explain::{Candidate, Explanation, Flip, Why};
pub use record::{Record, State};
pub use types::{
    Call, Cause, Collective, DType, Element, Error, F8E4M3, F8E5M2, Op, Operation, PreMulSum, Reduction,
    Result, Says, Transfer, Whereabouts,
};

/// The README's Rust example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
