//! Errors: what went wrong, which rank, and whether the communicator is still usable.

use super::{Call, Operation};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, io, time::Duration};

/// This crate's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument was wrong. Nothing was sent and the communicator is still good.
    #[error("{what}")]
    Invalid {
        /// What was wrong, what was wanted and what to do.
        what: Cow<'static, str>,
    },
    /// The call does not fit here: something unavailable, or used in a way that it is not meant for. Nothing was
    /// sent and the communicator is still good.
    #[error("{what}")]
    Usage {
        /// What does not fit and what to do instead.
        what: Cow<'static, str>,
    },
    /// The operating system refused something.
    #[error("{what}: {source}{}", hint(.source))]
    System {
        /// What was tried.
        what: Cow<'static, str>,
        /// The system's answer.
        source: io::Error,
    },
    /// The CUDA driver refused something.
    #[error("{what}")]
    Cuda {
        /// What was tried, and the driver's answer.
        what: String,
        /// The driver's number for that.
        code: i32,
    },
    /// The communicator could not be made.
    #[error("{what}")]
    Init {
        /// What went wrong, with the ranks that it concerns.
        what: String,
    },
    /// Not all ranks came to the communicator's making in time.
    #[error("{what}")]
    InitTimeout {
        /// How long was waited, and for whom.
        what: String,
    },
    /// This call failed and closed the communicator: destroy it and make a new one.
    #[error("{0}")]
    Failed(Cause),
    /// An earlier failure had closed this communicator: destroy it and make a new one.
    #[error("the communicator was closed by an earlier failure: {0}")]
    Closed(Cause),
    /// The library is at fault.
    #[error("internal error (please report it): {what}")]
    Internal {
        /// What was found that cannot be.
        what: Cow<'static, str>,
    },
}

impl Error {
    /// An [`Error::Invalid`].
    pub(crate) fn invalid(what: impl Into<Cow<'static, str>>) -> Self {
        Error::Invalid { what: what.into() }
    }

    /// An [`Error::Usage`].
    pub(crate) fn usage(what: impl Into<Cow<'static, str>>) -> Self {
        Error::Usage { what: what.into() }
    }

    /// An [`Error::System`].
    pub(crate) fn system(what: impl Into<Cow<'static, str>>, source: impl Into<io::Error>) -> Self {
        Error::System {
            what: what.into(),
            source: source.into(),
        }
    }

    /// Whether it says that rank `peer` has gone.
    pub(crate) fn is_end_of(&self, peer: usize) -> bool {
        matches!(
            self,
            Error::Failed(Cause::Left { rank, .. } | Cause::Lost { rank, .. }) if *rank as usize == peer
        )
    }

    /// An [`Error::Internal`].
    pub(crate) fn internal(what: impl Into<Cow<'static, str>>) -> Self {
        Error::Internal { what: what.into() }
    }
}

/// Why a communicator stopped working. It travels to all ranks, so that all report the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Cause {
    /// A rank's process died.
    Lost {
        /// The rank that died.
        rank: u32,
        /// How that was seen, e.g. "its process 4711 ended".
        how: String,
        /// The rank that saw it.
        seen_by: u32,
        /// What the observer was doing, if anything.
        during: Option<Operation>,
    },
    /// A rank left the communicator (destroyed it, or its process ended in order) while others still needed it.
    Left {
        /// The rank that left.
        rank: u32,
        /// The rank that needed it.
        seen_by: u32,
        /// What the observer was doing.
        during: Option<Operation>,
    },
    /// Ranks stayed silent past the deadline.
    Late {
        /// The ranks that are behind: those that `seen_by` was waiting for, without the ones that only wait for others.
        ranks: Vec<u32>,
        /// What the first of them said, as far as there was time to ask.
        found: Vec<Whereabouts>,
        /// The rank whose deadline passed.
        seen_by: u32,
        /// What it was doing.
        during: Option<Operation>,
        /// The deadline.
        after: Duration,
    },
    /// Two ranks made different calls at the same place.
    Mismatch {
        /// One rank and its call.
        here: (u32, Operation),
        /// The other rank and its call.
        there: (u32, Operation),
    },
    /// A rank aborted the communicator.
    Aborted {
        /// That rank.
        rank: u32,
    },
    /// Something else failed on a rank.
    Broken {
        /// That rank.
        rank: u32,
        /// What failed.
        what: String,
    },
    /// A rank revoked the communicator.
    Revoked {
        /// That rank.
        rank: u32,
    },
}

/// Where a rank is that is behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whereabouts {
    /// Its number.
    pub rank: u32,
    /// What others wait in for it.
    pub behind_in: Option<Operation>,
    /// What its process says.
    pub says: Says,
}

/// What the process of a rank says that is behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Says {
    /// It does not answer: it is stopped, or its host cannot be reached.
    Nothing,
    /// The rank does not wait for others. The last collective call that it made, if it made one.
    Last(Option<Call>),
    /// The rank waits itself.
    Waits(Operation),
    /// The rank waits for others to make a communicator of this one: by a split, shrink or grow.
    Makes,
    /// The rank does not wait here, but its process does in another communicator.
    Elsewhere {
        /// The last collective call that the rank made here, if it made one.
        last: Option<Call>,
        /// The other communicator's name, as `ccl-perf status` has it.
        communicator: String,
        /// What it waits in there.
        waits_in: Operation,
        /// For whom, as ranks are numbered there.
        ranks: Vec<u32>,
    },
}

impl Whereabouts {
    /// Tells it after a text that has told of `told`.
    fn tell(&self, told: Option<Operation>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rank = self.rank;
        match &self.says {
            Says::Nothing => write!(f, "rank {rank} does not answer")?,
            Says::Last(None) | Says::Elsewhere { last: None, .. } => {
                write!(f, "rank {rank} has made no collective call")?;
            }
            Says::Last(Some(call)) | Says::Elsewhere { last: Some(call), .. } => {
                write!(f, "the last call of rank {rank} is {call}")?;
            }
            Says::Waits(operation) => return write!(f, "rank {rank} waits in {operation}"),
            Says::Makes => {
                return write!(
                    f,
                    "rank {rank} waits for others to make a communicator of this one"
                );
            }
        }
        if let Says::Elsewhere {
            communicator,
            waits_in,
            ranks,
            ..
        } = &self.says
        {
            return write!(
                f,
                "; it waits for {} of another communicator ({communicator}) in {waits_in}",
                listed(ranks)
            );
        }
        match (self.behind_in, &self.says) {
            (None, _) => Ok(()),
            // It has made the call, and so is in it.
            (Some(Operation::Collective(call)), Says::Last(Some(last))) if *last == call => Ok(()),
            // "That" would be its last call.
            (behind_in, Says::Last(Some(_))) if behind_in == told => {
                f.write_str(", and what is waited for it has not done")
            }
            (behind_in, _) if behind_in == told => f.write_str(", and it is behind in that"),
            (Some(behind_in), _) => write!(f, ", and it is behind in {behind_in}"),
        }
    }
}

/// Some ranks, by their numbers.
fn listed(ranks: &[u32]) -> String {
    let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
    let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{noun} {}", list.join(", "))
}

impl fmt::Display for Whereabouts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tell(None, f)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Cause::Lost {
                rank,
                how,
                seen_by,
                during,
            } => {
                write!(f, "rank {rank} was lost ({how}), seen by rank {seen_by}")?;
                during.map_or(Ok(()), |call| write!(f, " in {call}"))
            }
            Cause::Left {
                rank,
                seen_by,
                during,
            } => {
                write!(
                    f,
                    "rank {rank} has left the communicator, but rank {seen_by} still needs it"
                )?;
                during.map_or(Ok(()), |call| write!(f, " in {call}"))
            }
            Cause::Late {
                ranks,
                found,
                seen_by,
                during,
                after,
            } => {
                let seconds = after.as_secs_f64();
                let for_itself = ranks.as_slice() == [*seen_by];
                match for_itself {
                    true => write!(f, "rank {seen_by} waited {seconds:.1} s for itself")?,
                    false => write!(
                        f,
                        "{} stayed silent: rank {seen_by} waited {seconds:.1} s",
                        listed(ranks)
                    )?,
                }
                during.map_or(Ok(()), |call| write!(f, " in {call}"))?;
                if for_itself {
                    f.write_str(": what a rank sends to itself it receives in the same group")?;
                }
                found.iter().try_for_each(|late| {
                    f.write_str("; ")?;
                    late.tell(*during, f)
                })
            }
            Cause::Mismatch {
                here: (a, ours),
                there: (b, theirs),
            } => {
                write!(
                    f,
                    "the ranks' calls differ: rank {a} made {ours}, rank {b} made {theirs}"
                )?;
                match differ_by_pair(ours, theirs) {
                    true => write!(f, "; the counts are of what goes between the two"),
                    false => Ok(()),
                }
            }
            Cause::Aborted { rank } => write!(f, "rank {rank} aborted the communicator"),
            Cause::Broken { rank, what } => write!(f, "rank {rank} failed: {what}"),
            Cause::Revoked { rank } => write!(f, "rank {rank} revoked the communicator"),
        }
    }
}

/// What to do where the system's own words do not say it.
fn hint(source: &io::Error) -> &'static str {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::MFILE) => " (see ulimit -n)",
        _ => "",
    }
}

/// Whether two ranks' calls differ in what goes between the two.
fn differ_by_pair(ours: &Operation, theirs: &Operation) -> bool {
    match (ours, theirs) {
        (Operation::Collective(ours), Operation::Collective(theirs)) => {
            ours.collective.counts_by_pair() && ours.count != theirs.count && ours.agrees_with(theirs)
        }
        _ => false,
    }
}
