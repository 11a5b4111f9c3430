//! Bootstrap: the unique id, the meeting of the ranks, the control thread.
//!
//! ```text
//! join            a rank's way in: blocks until all ranks have come
//! membership      what a rank holds afterwards: links to the others; health: who is alive, the first cause
//! control/        the process's control thread: the only one that touches bootstrap sockets after init
//! meeting, view, tree, messages, seat    what it says and decides, without sockets and clocks
//! status          what is told to who looks into a running process, and how to look
//! rails           the connections of a link, over several interfaces
//! derive          a communicator that is made of another one: its name, its secret, its meeting
//! env/            how the ranks that a launcher started come to a common unique id
//! ```

mod control;
mod derive;
pub(crate) mod env;
#[cfg(feature = "fuzzing")]
pub(crate) mod fuzzing;
mod health;
mod join;
mod meeting;
mod membership;
mod messages;
mod rails;
mod seat;
pub(crate) mod status;
mod tree;
mod unique_id;
mod view;

#[cfg(test)]
mod tests;

pub(crate) use derive::{Child, Descent, id_for_new_ranks};
pub(crate) use health::Peer;
pub(crate) use join::{Joining, Network, excuse, join};
pub(crate) use membership::{GO_ROUND, GRACE, LONGEST_APART, Membership};
pub(crate) use messages::{Made, Waits};
pub use unique_id::UniqueId;

use std::time::Duration;

/// The longest that anything waits, so that deadlines stay within what a clock can say.
const MAX_TIMEOUT: Duration = Duration::from_secs(365 * 86_400);
