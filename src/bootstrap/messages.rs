//! What the processes of a communicator say to each other, apart from the handshake and parcels.

use super::seat::{Host, Seat, Table};
use crate::{
    record::{Record, later},
    topo::share::Allowance,
    transport::links::Way,
    types::{Call, Cause, Operation, Says},
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A rank to the meeting place. Its number is in the handshake.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Comes {
    /// Here it is.
    Joins(Box<Join>),
    /// It will not come, because of that.
    Fails(String),
}

/// What a rank brings that joins.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Join {
    /// How many ranks it expects.
    pub(super) ranks: u32,
    /// The library's version.
    pub(super) version: String,
    /// The settings that must be the same on all ranks, by name.
    pub(super) knobs: Vec<(String, String)>,
    /// Whether it has a wire of a plugin's.
    pub(super) has_wire: bool,
    pub(super) seat: Seat,
    pub(super) host: Host,
    /// What it may use of its machine's processors.
    pub(super) allowance: Allowance,
    /// What it tells all others, if it is rank 0; nobody looks at it here.
    pub(super) told: Vec<u8>,
    /// How long it is willing to wait for the others, and how much of that is left.
    pub(super) timeout: Duration,
    pub(super) left: Duration,
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
    /// There is one already, without this rank's doing.
    Spent,
}

/// A rank to its neighbour in the control tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// `rank` has left in order. To be passed on, and answered with [`Word::Heard`] when all behind have heard.
    Left { rank: u32, made: Option<Made> },
    /// The sender, and everybody behind it, has heard that `rank` left.
    Heard { rank: u32 },
    /// `rank` died. To be passed on.
    Died { rank: u32, how: String },
    /// Up the tree: this stopped a rank, if nothing else did before.
    Raise(Cause),
    /// Down the tree: this is what stopped the communicator.
    Verdict(Cause),
}

/// What a rank had called when it left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Made {
    /// Collective calls.
    pub(crate) calls: u32,
    /// The last of them, if it is known.
    pub(crate) last: Option<Call>,
}

/// The answer to who asks a rank what it is waiting for.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Waits {
    /// Whom the rank waits for; nobody when it does not wait.
    pub(crate) ranks: Vec<u32>,
    /// What it waits in.
    pub(crate) waits_in: Option<Operation>,
    /// Whether it waits to make a communicator of this one.
    pub(crate) makes: bool,
    /// How long nothing has moved, if it waits.
    pub(crate) still: Option<Duration>,
    /// What its process waits in meanwhile, in another communicator, if the rank does not wait.
    pub(crate) elsewhere: Option<Elsewhere>,
    /// What stopped the communicator, as far as the rank knows: word of it may not have come to who asks.
    pub(crate) stopped: Option<Cause>,
    /// Its last operations.
    pub(crate) records: Vec<Record>,
    /// By rank, what the directions to it and from it go by; of the first ranks, where there are many.
    pub(crate) ways: Vec<[Way; 2]>,
}

/// A wait in another communicator of the same process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Elsewhere {
    pub(super) communicator: String,
    pub(super) waits_in: Operation,
    /// For whom, as ranks are numbered there: the first of them.
    pub(super) ranks: Vec<u32>,
    /// How long nothing has moved.
    pub(super) still: Duration,
}

impl Waits {
    /// What that tells of a rank that does not wait for others of this communicator.
    pub(super) fn last(self) -> Says {
        let last = self.newest();
        match self.elsewhere {
            None => Says::Last(last),
            Some(Elsewhere {
                communicator,
                waits_in,
                ranks,
                ..
            }) => Says::Elsewhere {
                last,
                communicator,
                waits_in,
                ranks,
            },
        }
    }

    /// What that tells of a rank that waits.
    pub(crate) fn says(&self) -> Option<Says> {
        match self.makes {
            true => Some(Says::Makes),
            false => self.waits_in.map(Says::Waits),
        }
    }

    /// The call with this number, if it is among the last ones that the rank has made.
    pub(crate) fn made(&self, seq: u32) -> Option<Call> {
        self.calls().find(|call| call.seq == seq)
    }

    /// Whether the call with this number is not among the last ones because the rank has made so many since.
    pub(crate) fn has_forgotten(&self, seq: u32) -> bool {
        let mut seqs = self.calls().map(|call| call.seq).peekable();
        seqs.peek().is_some() && seqs.all(|made| made.wrapping_sub(seq).cast_signed() > 0)
    }

    /// How many calls the rank has made, as far as is known: none where the last ones are not.
    pub(crate) fn calls_made(&self) -> u32 {
        self.newest().map_or(0, |call| call.seq.wrapping_add(1))
    }

    fn calls(&self) -> impl Iterator<Item = Call> {
        self.records.iter().filter_map(|record| record.call().copied())
    }

    /// The last call that the rank has made.
    pub(crate) fn newest(&self) -> Option<Call> {
        let newer = |a: Call, b: Call| if later(a.seq, b.seq) == a.seq { a } else { b };
        self.calls().reduce(newer)
    }
}
