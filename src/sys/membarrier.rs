//! A memory barrier on all processors at once, for the side of a handshake that is rarely taken.
//!
//! A thread that stores A and then loads B, against one that stores B and then loads A, needs a full fence on both
//! sides so that at least one of them sees the other's store. With [`everywhere`] the rare side pays for both: when it
//! returns, each running thread of the registered processes has passed a full barrier, and those that do not run passed
//! one when they were switched out. The frequent side needs no more than that the compiler keeps its order.
//!
//! Source: `membarrier(2)`, `MEMBARRIER_CMD_GLOBAL_EXPEDITED`, Linux 4.16. Containers and kernels may refuse it.

use rustix::thread::{MembarrierCommand, membarrier};

/// Lets other processes' calls of [`everywhere`] reach the threads of this one. Whether it did: otherwise this
/// process's threads must fence for themselves. May be called again.
pub(crate) fn register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// A full barrier for the caller and for all threads of registered processes. Whether it was made.
pub(crate) fn everywhere() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}
