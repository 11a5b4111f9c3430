//! Executors: they run a rank's schedule over its links.
//!
//! An executor never chooses an algorithm and never blocks: it moves on as far as the links let it and says on whom it
//! waits. How to wait is [`wait`]'s policy.

mod cursor;
mod host;
pub(crate) mod wait;

#[cfg(test)]
pub(crate) use host::Lend;
pub(crate) use host::{Fault, Progress, Run, Work};

#[cfg(test)]
mod tests;
