//! What the processes of a communicator say to each other, apart from the handshake and parcels.

use crate::{
    net::Address,
    topo::share::{Allowance, Crowd},
    types::{Call, Cause, Operation},
};
use serde::{Deserialize, Serialize};
use std::{fmt, net::SocketAddr, time::Duration};

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
    /// What it may use of its machine's processors.
    pub(super) allowance: Allowance,
    /// How long it is willing to wait for the others.
    pub(super) timeout: Duration,
}

/// Where a rank is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Seat {
    /// Its process's Unix socket; ranks with the same one share a process.
    pub(super) unix: Address,
    /// The TCP port where it listens, if it does. A loopback address stands for the host of the meeting place.
    pub(super) tcp: Option<SocketAddr>,
    /// Its process, as seen in its pid namespace.
    pub(super) pid: u32,
    /// Its pid namespace; 0 when it does not know.
    pub(super) pid_namespace: u64,
    /// Its machine, as far as pids and processors are concerned (see [`crate::sys::host::boot_id`]).
    pub(super) boot: [u8; 16],
}

impl Seat {
    /// Where its process may be reached, the best first.
    pub(super) fn addresses(&self) -> Vec<Address> {
        [self.unix]
            .into_iter()
            .chain(self.tcp.map(Address::Tcp))
            .collect()
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "process {}", self.pid)?;
        match self.tcp {
            Some(at) if !at.ip().is_loopback() => write!(f, " on {}", at.ip()),
            _ => Ok(()),
        }
    }
}

/// Where all ranks are.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Table {
    /// By rank.
    pub(super) seats: Vec<Seat>,
    /// The cores for all ranks: as many as on the machine that has the fewest for each of its own.
    pub(super) cores: u32,
    /// By rank, whether it has to share a processor, or has less than one's time.
    pub(super) crowds: Vec<Crowd>,
    /// Whether all ranks came to the meeting place from its own host: as a rule they can share memory then.
    pub(super) one_host: bool,
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
}
