//! What the processes of a communicator say to each other, apart from the handshake and parcels.

use super::seat::{Host, Seat, Table};
use crate::{
    topo::share::Allowance,
    types::{Call, Cause, Operation},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A rank to the meeting place: here I am. Its number is in the handshake.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Join {
    /// How many ranks it expects.
    pub(super) ranks: u32,
    /// The library's version.
    pub(super) version: String,
    /// The settings that must be the same on all ranks, by name.
    pub(super) knobs: Vec<(String, String)>,
    pub(super) seat: Seat,
    pub(super) host: Host,
    /// What it may use of its machine's processors.
    pub(super) allowance: Allowance,
    /// How long it is willing to wait for the others.
    pub(super) timeout: Duration,
}

/// The meeting place to a rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Answer {
    /// All are here.
    Table(Table),
    /// There will be no communicator.
    Refused {
        /// Whether that is because ranks did not come in time.
        late: bool,
        /// Why, the same on all ranks.
        what: String,
    },
}

/// A rank to its neighbour in the control tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// `rank` has left in order. To be passed on, and answered with [`Word::Heard`] when all behind have heard.
    Left { rank: u32 },
    /// The sender, and everybody behind it, has heard that `rank` left.
    Heard { rank: u32 },
    /// `rank` died. To be passed on.
    Died { rank: u32, how: String },
    /// Up the tree: this stopped a rank, if nothing else did before.
    Raise(Cause),
    /// Down the tree: this is what stopped the communicator.
    Verdict(Cause),
}

/// The answer to who asks a rank what it is waiting for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Waits {
    /// Whom the rank waits for; nobody when it does not wait.
    pub(super) ranks: Vec<u32>,
    /// What it waits in.
    pub(crate) waits_in: Option<Operation>,
    /// The calls that it has made last.
    pub(super) calls: Vec<Call>,
}

impl Waits {
    /// The call with this number, if it is among the last ones that the rank has made.
    pub(crate) fn made(&self, seq: u32) -> Option<Call> {
        self.calls.iter().copied().find(|call| call.seq == seq)
    }

    /// The last call that the rank has made.
    pub(super) fn newest(&self) -> Option<Call> {
        let is_later = |a: &Call, b: &Call| a.seq.wrapping_sub(b.seq).cast_signed() > 0;
        let calls = self.calls.iter().copied();
        calls.reduce(|newest, call| if is_later(&call, &newest) { call } else { newest })
    }
}
