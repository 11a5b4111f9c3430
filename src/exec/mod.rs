//! Executors: they run a rank's schedules over its links, and move its messages to single ranks.
//!
//! An executor never chooses an algorithm and never blocks: it moves on as far as the links let it and says on whom it
//! waits. How to wait is [`wait`]'s policy.

mod bodies;
mod completion;
mod cursor;
mod host;
mod memory;
mod short;
mod straight;
mod track;
mod transfers;
pub(crate) mod wait;

pub use completion::Received;
pub(crate) use completion::{Completion, Outcome};
pub(crate) use host::{Fault, Progress, Run};
pub(crate) use memory::{Lend, Work};
pub(crate) use short::{FEW_LOOKS, Short, Turn};
pub(crate) use straight::{Reached, Straight};
pub(crate) use transfers::{Brief, Message, Posted, Sending, Transfers, Wanted};

#[cfg(test)]
mod tests;
