//! Memory barriers on all processors at once, for the side of a handshake that is rarely taken.
//!
//! A thread that stores A and then loads B, against one that stores B and then loads A, needs a full fence on both
//! sides so that at least one of them sees the other's store. With [`everywhere`] the rare side pays for both: when it
//! returns, each running thread of the registered processes has passed a full barrier, and those that do not run passed
//! one when they were switched out. The frequent side needs no more than that the compiler keeps its order.
//!
//! [`here`] does so among the threads of this process alone. It misses none, where the other one may
//! (`src/transport/shm/bell.rs`): the kernel asks each processor what it runs, and needs no note of who is registered.
//!
//! Source: `membarrier(2)`, `MEMBARRIER_CMD_GLOBAL_EXPEDITED`, Linux 4.16, and `PRIVATE_EXPEDITED`, 4.14. Containers and kernels
//! may refuse them.

use super::per_process::PerProcess;
use rustix::thread::{MembarrierCommand, membarrier};
use std::{
    convert::Infallible,
    sync::atomic::{Ordering::SeqCst, fence},
    thread,
    time::Duration,
};

/// Lets other processes' calls of [`everywhere`] reach the threads of this one. Whether it did: otherwise this
/// process's threads must fence for themselves. May be called again.
pub(crate) fn register() -> bool {
    membarrier(MembarrierCommand::RegisterGlobalExpedited).is_ok()
}

/// A full barrier for the caller and for all threads of registered processes. Whether it was made.
pub(crate) fn everywhere() -> bool {
    membarrier(MembarrierCommand::GlobalExpedited).is_ok()
}

/// Lets [`here`] reach the threads of this process: whether it does. It asks the kernel once, which takes some milliseconds where
/// there are several threads already, and a microsecond where there are not.
pub(crate) fn register_here() -> bool {
    static IS_REGISTERED: PerProcess<bool> = PerProcess::new();
    let register = || Ok::<_, Infallible>(membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok());
    let is_registered = IS_REGISTERED.get_or_try_init(register);
    is_registered.is_ok_and(|is| *is)
}

/// A full barrier for the caller and for all threads of this process, which is registered. Where the program has forbidden it
/// since, this is a time in which all stores arrive.
pub(crate) fn here() {
    if membarrier(MembarrierCommand::PrivateExpedited).is_err() {
        thread::sleep(ARRIVE);
        fence(SeqCst);
    }
}

/// Stores leave a processor within a fraction of a microsecond.
const ARRIVE: Duration = Duration::from_millis(1);
