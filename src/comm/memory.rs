//! Memory: what a communicator holds, for the log, and what it is told of its callers'.

use super::{Communicator, engine::Engine};
use crate::{
    mem::Region,
    types::{Element, Result},
};
use tracing::debug;

impl Communicator {
    /// Says that calls will use `data` again and again. If it lies in [`SharedMemory`](crate::SharedMemory) the peers that this
    /// rank has sent to are told at once where, which else happens in the first call that uses it; else nothing happens.
    /// Waits for a running call.
    ///
    /// # Errors
    /// [`Error::Failed`](crate::Error::Failed) and [`Error::Closed`](crate::Error::Closed), as for
    /// [operations](Communicator#operations).
    pub fn register<T: Element>(&self, data: &[T]) -> Result<()> {
        self.register_memory(&Region::of(data))
    }

    /// The same for memory that is not touched.
    pub(crate) fn register_memory(&self, memory: &Region<'_>) -> Result<()> {
        self.engine.register(memory)
    }
}

impl Engine {
    /// Tells what this rank holds for the communicator. Links are made on first use and keep their size; scratch is that of
    /// the operation that needed most, a few tiles for each rank however long its vector was.
    pub(super) fn tell_memory(&self) {
        let (rank, ranks) = (self.membership.rank(), self.membership.ranks());
        if let Ok((links, scratch)) = self.memory() {
            debug!(
                rank,
                ranks, "memory: {links} bytes of address space for links, {scratch} bytes of scratch"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Communicator, Op};
    use std::thread;

    #[test]
    fn calls_that_were_made_before_take_no_more_and_long_ones_little() {
        let comms = Communicator::init_all(3).unwrap();
        thread::scope(|scope| {
            for comm in &comms {
                scope.spawn(move || {
                    let mut data = vec![1u64; 3_000_000];
                    let mut calls = || {
                        for len in (0..20).map(|i| 3 * i).chain([3_000, 300_000, 3_000_000]) {
                            comm.all_reduce_in_place(&mut data[..len], Op::Max).unwrap();
                            comm.all_gather_in_place(&mut data[..len]).unwrap();
                            comm.broadcast_in_place(&mut data[..len], 1).unwrap();
                        }
                        comm.engine.memory().unwrap()
                    };
                    let first = calls();
                    assert_eq!(calls(), first);
                    assert!(first.1 < size_of_val(&data[..]) / 4, "{first:?}");
                });
            }
        });
    }
}
