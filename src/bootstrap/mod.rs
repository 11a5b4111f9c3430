//! Bootstrap: the unique id, the meeting of the ranks, the control thread.
//!
//! ```text
//! join            a rank's way in: blocks until all ranks have come
//! membership      what a rank holds afterwards: links to the others; health: who is alive, the first cause
//! control/        the process's control thread: the only one that touches bootstrap sockets after init
//! meeting, view, tree, messages    what it says and decides, without sockets and clocks
//! derive          a communicator that is made of another one: its name, its secret, its meeting
//! env/            how the ranks that a launcher started come to a common unique id
//! ```

mod calls;
mod control;
mod derive;
pub(crate) mod env;
mod health;
mod join;
mod meeting;
mod membership;
mod messages;
mod tree;
mod unique_id;
mod view;

#[cfg(test)]
mod tests;

pub(crate) use derive::Child;
pub(crate) use health::Peer;
pub(crate) use join::{Joining, Network, join};
pub(crate) use membership::Membership;
pub use unique_id::UniqueId;

use std::time::Duration;

/// The longest that anything waits, so that deadlines stay within what a clock can say.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);
