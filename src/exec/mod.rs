//! Executors: they run a rank's schedule over its links.
//!
//! An executor never chooses an algorithm and never blocks: it moves on as far as the links let it and says on whom it
//! waits. How to wait is [`wait`]'s policy.

mod cursor;
mod host;
mod memory;
mod track;
pub(crate) mod wait;

pub(crate) use host::{Fault, Progress, Run};
#[cfg(test)]
pub(crate) use memory::Lend;
pub(crate) use memory::Work;

#[cfg(test)]
mod tests;
