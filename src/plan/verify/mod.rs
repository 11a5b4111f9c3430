//! Proves that schedules carry out their collective, whatever the timing, before a byte moves.
//!
//! All ranks' schedules are run symbolically: a grain holds a multiset of contributions (whose input, which position)
//! instead of numbers. The run shows that every output ends with what [`super::definition`] asks for, that every
//! message is received where it should be, that no unwritten grain is read, that in place a reduction reads its input
//! before it stores there, and that nobody waits for ever. Accesses of different channels of a rank to the same grain
//! must be ordered by `after` ([`races`]), so that one run stands for all possible orders ([`machine`]).
//!
//! Nobody waits for ever, and that on any executor that does what a [`Mode`] says or less: the run waits wherever an
//! executor might. It also tells which sends are *zero-copy-safe*: the data may stay where it lies until the
//! receiver has taken it, because no step that would overwrite it has to wait for that in a circle.
//!
//! What was proved is also counted ([`Certificate`]), to be held against what the collective needs at least.
//!
//! What an executor owes in return: it honours the `after` of a step that is empty in a tile; a step is over for
//! `after` when its results are stored and its messages sent or posted; and scratch memory goes to another tile when
//! all channels of this one are over and nothing in it is lent.
//!
//! Where one order of all contributions is asked for, [`ordered`] proves that as well.
//!
//! If the ranks' schedules are turned copies of each other, rank 0 is run for all ([`fold`]). Else each is run: up to
//! [`EXACT`] ranks the multisets are kept as they are, above hashes stand for them.

mod certificate;
mod compute;
mod flaw;
mod fold;
mod lanes;
mod machine;
mod memory;
#[cfg(test)]
pub(crate) mod mutate;
mod ordered;
mod outcome;
mod program;
mod races;
mod shape;
mod stuck;
mod team;
#[cfg(test)]
mod tests;
pub(in crate::plan) mod value;

pub(crate) use certificate::Certificate;
pub(crate) use flaw::Flaw;
#[cfg(any(feature = "cli", feature = "fuzzing"))]
pub(crate) use flaw::{Kind, Verb};
pub(crate) use ordered::verify_in_order;
pub(crate) use program::Path;

use super::schedule::{Extent, How, Schedule, Slice, Source, Step};
use crate::types::Collective;
use machine::{Job, Machine, Tally, Turn};
use std::collections::BTreeSet;
use team::Team;
use value::{Domain, Exact, Labels};

/// Up to this many ranks each rank is run and multisets of contributions are kept exactly.
pub(crate) const EXACT: usize = 130;

/// How the imagined executor handles messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode {
    /// Messages that a lane holds at most; a send waits until there is room.
    slots: usize,
    /// Whether a step leaves the messages that it reduces or copies in their slots until all its own sends have
    /// room, as an executor does that works from slot to slot. Otherwise it takes them first.
    holds: bool,
    /// Whether a send whose data lies in memory is posted by its step and done when the receiver took it, so that a
    /// step that would overwrite the data waits. Otherwise, and for other sends, a copy is made.
    posts: bool,
}

impl Mode {
    /// Lanes of `slots` ≥ 1 messages, and a copy of each.
    pub(crate) const fn buffered(slots: usize) -> Self {
        Mode {
            slots,
            holds: false,
            posts: false,
        }
    }

    /// No copy is made where the data lies in memory; posts are never refused.
    #[cfg(test)]
    pub(crate) const POSTED: Mode = Mode {
        slots: usize::MAX,
        holds: false,
        posts: true,
    };

    /// The same executor working from slot to slot. It needs a slot more: in a ring every rank would hold the only
    /// message of a lane and wait for room in the next. What ends with s slots ends with s + 1 and this.
    pub(crate) const fn holding(self) -> Self {
        Mode { holds: true, ..self }
    }

    /// The same executor sending without a copy where it can.
    pub(crate) const fn posting(self) -> Self {
        Mode { posts: true, ..self }
    }

    /// The strictest of both kinds of executor. Schedules that come to the end with these do so with more slots, and
    /// whichever of the zero-copy-safe sends are copied after all.
    const STRICTEST: [Mode; 2] = [Mode::buffered(1).posting(), Mode::buffered(2).holding().posting()];
}

/// What was proved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Proof {
    pub(crate) ranks: usize,
    /// Steps and messages of all ranks together.
    pub(crate) steps: u64,
    pub(crate) messages: u64,
    /// What the ranks' tiles depend on.
    pub(crate) extent: Extent,
    /// What it costs.
    pub(crate) certificate: Certificate,
    /// With rank 0 run for all: how many ranks' schedules were compared with its own.
    pub(crate) folded: Option<usize>,
    /// The sends to be copied, out of place and in place.
    staged: [BTreeSet<SendSite>; 2],
}

/// A send of a schedule: which of a step's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct SendSite {
    pub(crate) rank: usize,
    pub(crate) channel: u32,
    /// Where the step stands among the channel's items and those of its repeats.
    pub(crate) item: Path,
    pub(crate) send: u32,
}

impl Proof {
    /// Whether a send may leave its data in memory, at [`places`], until the receiver has taken it, as long as the
    /// executor holds back steps that would overwrite it.
    pub(crate) fn zero_copy(&self, in_place: bool, site: &SendSite) -> bool {
        let staged = &self.staged[usize::from(in_place)];
        match self.folded {
            None => !staged.contains(site),
            Some(_) => !staged.contains(&SendSite {
                rank: 0,
                ..site.clone()
            }),
        }
    }

    /// The same without what it says of the sends of other ranks than `rank`.
    pub(crate) fn of(&self, rank: usize) -> Proof {
        let rank = if self.folded.is_some() { 0 } else { rank };
        let of_rank = |staged: &BTreeSet<SendSite>| {
            let sites = staged.iter().filter(|site| site.rank == rank);
            sites.cloned().collect()
        };
        Proof {
            staged: self.staged.each_ref().map(of_rank),
            ..*self
        }
    }

    /// The sends of which a copy must be made; with a folded proof rank 0's, for all.
    #[cfg(test)]
    pub(crate) fn staged(&self, in_place: bool) -> impl Iterator<Item = &SendSite> {
        self.staged[usize::from(in_place)].iter()
    }
}

/// Where the data of a step's sends lies in memory, each a place to send it from: the source of a copy, and the first
/// store. Empty where a received or reduced value is only passed on.
pub(crate) fn places(step: &Step) -> impl Iterator<Item = &Slice> {
    let source = match (step.how, step.sources.first()) {
        (How::Copy, Some(Source::Slice(slice))) => Some(slice),
        _ => None,
    };
    source.into_iter().chain(step.stores.first())
}

/// Proves the schedules of `ranks` ranks, in place and out of place, in the cheapest way: ranks that are alike are run
/// once for all, and if they are many only some of their schedules are built.
///
/// # Errors
/// The first [`Flaw`] found.
pub(crate) fn verify(
    collective: Collective,
    ranks: usize,
    schedule_of: impl Fn(usize) -> Schedule,
) -> Result<Proof, Flaw> {
    if let Some(proof) = verify_folded(collective, ranks, &schedule_of)? {
        return Ok(proof);
    }
    let schedules: Vec<_> = (0..ranks).map(schedule_of).collect();
    verify_all(collective, &schedules)
}

/// Proves all ranks' schedules by running each of them.
pub(crate) fn verify_all(collective: Collective, schedules: &[Schedule]) -> Result<Proof, Flaw> {
    let ranks = schedules.len();
    let team = Team::new(collective, ranks, schedules)?;
    match ranks <= EXACT {
        true => prove(&team, collective, &Exact::new(ranks), None),
        false => prove(&team, collective, &Labels::new(ranks), None),
    }
}

/// Proves schedules of which each is rank 0's, turned, by running rank 0's alone; `None` when they are not.
pub(crate) fn verify_folded(
    collective: Collective,
    ranks: usize,
    schedule_of: impl Fn(usize) -> Schedule,
) -> Result<Option<Proof>, Flaw> {
    let Some(symmetry) = fold::symmetry(collective, ranks, schedule_of) else {
        return Ok(None);
    };
    let schedules = [symmetry.schedule];
    let team = Team::new(collective, ranks, &schedules)?;
    let turn = Turn {
        grains: symmetry.shift,
        ranks: value::turned,
    };
    let proof = prove(&team, collective, &Exact::new(ranks), Some(&turn))?;
    Ok(Some(Proof {
        steps: proof.steps * ranks as u64,
        messages: proof.messages * ranks as u64,
        folded: Some(symmetry.sample.len() + 1),
        ..proof
    }))
}

/// Runs up to [`EXACT`] ranks' schedules with one kind of executor.
/// Which sends it must copy is for [`verify`] to tell.
#[cfg(test)]
pub(crate) fn run(
    collective: Collective,
    schedules: &[Schedule],
    in_place: bool,
    mode: Mode,
) -> Result<(), Flaw> {
    let team = Team::new(collective, schedules.len(), schedules)?;
    races::check(&team, in_place)?;
    let domain = Exact::new(schedules.len());
    let job = Job {
        team: &team,
        collective,
        in_place,
        mode,
        domain: &domain,
        turn: None,
    };
    Machine::new(&job, &mut BTreeSet::new()).run().map(|_| ())
}

/// A send as a run numbers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Site {
    thread: usize,
    pc: usize,
    send: usize,
}

fn prove<D: Domain>(
    team: &Team<'_>,
    collective: Collective,
    domain: &D,
    turn: Option<&Turn<D::Sum>>,
) -> Result<Proof, Flaw> {
    let (mut tally, mut staged) = (Tally::default(), [BTreeSet::new(), BTreeSet::new()]);
    for in_place in [false, true] {
        races::check(team, in_place)?;
        let mut blocking = BTreeSet::new();
        for mode in Mode::STRICTEST {
            let job = Job {
                team,
                collective,
                in_place,
                mode,
                domain,
                turn,
            };
            tally = Machine::new(&job, &mut blocking).run()?;
        }
        staged[usize::from(in_place)] = to_be_staged(team, &blocking);
    }
    let certificate = certificate::certify(team, turn.is_some());
    debug_assert!(
        certificate.is_possible(collective, team.ranks),
        "{certificate:?} is less than {collective:?} needs among {} ranks",
        team.ranks
    );
    Ok(Proof {
        ranks: team.ranks,
        steps: tally.steps,
        messages: tally.messages,
        extent: Extent::of_all(team.schedules.iter().map(Schedule::extent)),
        certificate,
        folded: None,
        staged,
    })
}

/// The sends that were in somebody's way, and those whose data has no place in memory.
fn to_be_staged(team: &Team<'_>, blocking: &BTreeSet<Site>) -> BTreeSet<SendSite> {
    let mut staged = BTreeSet::new();
    for (thread, program) in team.programs.iter().enumerate() {
        let (rank, channel) = team.threads[thread];
        for (pc, step, path) in program.steps() {
            let placeless = places(step).next().is_none();
            for send in 0..step.sends.len() {
                if placeless || blocking.contains(&Site { thread, pc, send }) {
                    staged.insert(SendSite {
                        rank,
                        channel: channel as u32,
                        item: path.clone(),
                        send: send as u32,
                    });
                }
            }
        }
    }
    staged
}
