//! What the integration tests share: ranks as threads of one process.
#![allow(dead_code, missing_docs, unused_imports, unused_macros)] // each test uses a part of it

pub(crate) mod compile;
pub(crate) mod memory;
pub(crate) mod plugin;
pub(crate) mod process;

use ccl::{Communicator, Config, Error, Result, UniqueId};
use std::{fmt::Debug, thread, time::Duration};

/// A configuration whose waits end soon enough for a test, and late enough for a busy machine.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.timeout = Some(Duration::from_secs(60));
    config
}

/// The same with an algorithm for all that it fits.
pub(crate) fn with_algorithm(name: &str) -> Config {
    let mut config = config();
    config.algorithm = Some(name.to_owned());
    config
}

/// Calls `$check::<T>($comm, of)` for every type, whose values `of` makes of bytes.
macro_rules! every_copy {
    ($check:ident, $comm:expr) => {
        use ccl::{F8E4M3, F8E5M2};
        use half::{bf16, f16};
        $check($comm, |byte| byte as i8);
        $check($comm, |byte| byte);
        $check($comm, |byte| i16::from(byte) << 7);
        $check($comm, |byte| u16::from(byte) << 8);
        $check($comm, |byte| i32::from(byte) << 23);
        $check($comm, |byte| u32::from(byte) << 24);
        $check($comm, |byte| i64::from(byte) << 55);
        $check($comm, |byte| u64::from(byte) << 56);
        $check($comm, |byte| f16::from_f32(byte.into()));
        $check($comm, |byte| bf16::from_f32(byte.into()));
        $check($comm, f32::from);
        $check($comm, f64::from);
        $check($comm, F8E4M3);
        $check($comm, F8E5M2);
    };
}
pub(crate) use every_copy;

/// Calls `$check::<T>($comm, values of three ranks, what each operation makes of them)` for every type and operation.
macro_rules! every_reduction {
    ($check:ident, $comm:expr) => {
        use ccl::{F8E4M3, F8E5M2, Op::*};
        use half::{bf16, f16};
        every_reduction!(integers $check, $comm, i8 u8 i16 u16 i32 u32 i64 u64);
        every_reduction!(floats $check, $comm, f32: |x: f32| x, f64: f64::from, f16: f16::from_f32,
            bf16: bf16::from_f32, F8E4M3: F8E4M3::from_f32, F8E5M2: F8E5M2::from_f32);
    };
    (integers $check:ident, $comm:expr, $($t:ty)*) => {$(
        let want = [(Sum, 24), (Prod, 60), (Max, 20), (Min, 1), (Avg, 8), (BitAnd, 0), (BitOr, 23), (BitXor, 22)];
        $check::<$t>($comm, [20, 1, 3], &want);
    )*};
    (floats $check:ident, $comm:expr, $($t:ty: $of:expr),*) => {$(
        let of = $of;
        let want = [(Sum, of(7.0)), (Prod, of(8.0)), (Max, of(4.0)), (Min, of(1.0))];
        $check::<$t>($comm, [of(4.0), of(1.0), of(2.0)], &want);
        $check::<$t>($comm, [of(4.0), of(1.0), of(1.0)], &[(Avg, of(2.0))]);
    )*};
}
pub(crate) use every_reduction;

/// Runs `body` as each of `ranks` ranks, a thread each, and returns what they returned, by rank.
pub(crate) fn with_ranks<T: Send>(
    ranks: usize,
    config: &Config,
    body: impl Fn(&Communicator) -> T + Sync,
) -> Vec<T> {
    let id = UniqueId::new().expect("a unique id");
    thread::scope(|scope| {
        let run = |rank| {
            let (id, body) = (&id, &body);
            scope.spawn(move || body(&Communicator::init(ranks, id, rank, config).expect("init")))
        };
        let threads: Vec<_> = (0..ranks).map(run).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a rank's thread"))
            .collect()
    })
}

/// What is said of an argument that is refused.
pub(crate) fn said<T: Debug>(result: Result<T>) -> String {
    match result {
        Err(error @ Error::Invalid { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    }
}

/// Calls until one fails, by which the communicator is closed; who only sends goes on until there is no more room, or word of
/// the others has come. Returns what is said.
pub(crate) fn fail(call: impl Fn() -> Result<()>) -> String {
    let error = (0..1000).map(|_| call()).find_map(Result::err);
    let error = error.expect("a difference that is found");
    assert!(matches!(error, Error::Failed(_)), "{error:?}");
    let again = call().unwrap_err();
    assert!(matches!(again, Error::Closed(_)), "{again:?}");
    error.to_string()
}
