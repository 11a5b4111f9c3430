//! Communicators of the ranks of another one: [`Communicator::split`] and [`Communicator::duplicate`].

use super::{Communicator, Config, config::Deadlines};
use crate::{
    bootstrap::{Child, Descent},
    mem::Region,
    types::{Call, Collective, DType, Error, Result, Says, Whereabouts},
};
use std::time::{Duration, Instant};
use tracing::{debug, warn};

/// # More communicators
impl Communicator {
    /// Makes a communicator of the ranks that pass the same `color`, in the order of their `key`, and of their ranks here
    /// where keys are equal. Without a color (`None`) a rank takes part, and gets none.
    ///
    /// It is an operation of all ranks, at the same place among the others. The new communicators have nothing in common
    /// with this one, which may be used, finalized and dropped in any order with them. Without `config` they have this
    /// one's settings and its present timeout; ranks of the same color pass settings that fit, as for
    /// [`Communicator::init`], and wait for one another as long as there.
    ///
    /// # Errors
    /// [`Error::Usage`] for settings that do not exist, before anything was sent: as with any operation the other ranks then
    /// wait for this one, so that all must pass what is valid. [`Error::Failed`] and [`Error::Closed`] as any operation, when
    /// a rank was lost or called something else. Once the colors are known, [`Error::Init`] and [`Error::InitTimeout`] as
    /// [`Communicator::init`], on all ranks of that color; this communicator is then as good as before, unless what was
    /// wrong concerns it, too. Only where a rank dies while the last word goes round may some get a communicator: its first
    /// operation then fails.
    pub fn split(
        &self,
        color: Option<u32>,
        key: i32,
        config: Option<&Config>,
    ) -> Result<Option<Communicator>> {
        self.settings(config)?;
        let (number, ranks) = self.exchange(color, key)?;
        let Some(color) = color else {
            return Ok(None);
        };
        let members = members(&ranks, color);
        let (made, _) = self.meet(Descent::Split { number, color }, &members, members.len(), config)?;
        made.map(Some)
    }

    /// Makes another communicator of the same ranks: [`Communicator::split`] where all have one color and no order of their
    /// own.
    ///
    /// # Errors
    /// As [`Communicator::split`].
    pub fn duplicate(&self, config: Option<&Config>) -> Result<Communicator> {
        self.split(Some(0), 0, config)?
            .ok_or_else(|| Error::internal("a split with a color made nothing"))
    }

    /// The settings of a communicator that is made of this one.
    pub(crate) fn settings(&self, config: Option<&Config>) -> Result<Config> {
        let mut config = config.cloned().unwrap_or_else(|| Config {
            timeout: self.own_timeout(),
            name: None,
            ..self.config.clone()
        });
        config.gpu = config.gpu.or_else(|| self.config.gpu.clone());
        #[cfg(feature = "cuda")]
        {
            let own = || self.windows.as_ref().map(|windows| windows.window.context());
            config.context = config.context.or(self.config.context).or_else(own);
        }
        config.check()?;
        Ok(config)
    }

    /// The present timeout, unless it is still the default one, beside which init has another.
    fn own_timeout(&self) -> Option<Duration> {
        let Deadlines { init, operations } = self.deadlines;
        Some(self.timeout()).filter(|&timeout| init == operations || timeout != operations)
    }

    /// Tells all ranks this one's color and key: returns theirs, by rank, and how many splits there were before.
    fn exchange(&self, color: Option<u32>, key: i32) -> Result<(u64, Vec<Told>)> {
        self.engine.membership.check()?;
        // Held meanwhile, so that splits are numbered as they are carried out.
        let mut splits = (self.splits.lock())
            .map_err(|_| Error::internal("an earlier call on this communicator panicked"))?;
        let send = [color.map_or(NO_COLOR, i64::from), key.into()];
        let mut recv = vec![0; send.len() * self.ranks()];
        let (input, output) = (Region::of(&send), Region::of_mut(&mut recv));
        let (collective, count) = (Collective::AllGather, send.len());
        self.collective(
            collective,
            Some(input),
            Some(output),
            count,
            DType::Int64,
            Call::SPLIT,
        )?;
        let number = *splits;
        *splits += 1;
        let told = recv.chunks_exact(send.len()).map(|told| Told {
            color: told[0],
            key: told[1],
        });
        Ok((number, told.collect()))
    }

    /// Joins the communicator of `ranks` ranks that is made of this one's `members`, who come first there. Says, too,
    /// whether there is one, so that the next is another.
    ///
    /// # Errors
    /// Of what comes before the meeting.
    pub(super) fn meet(
        &self,
        descent: Descent,
        members: &[usize],
        ranks: usize,
        config: Option<&Config>,
    ) -> Result<(Result<Communicator>, bool)> {
        let settings = self.settings(config)?;
        let (rank, here) = (self.rank(), self.ranks());
        let new = (members.iter().position(|&member| member == rank))
            .ok_or_else(|| Error::internal("a communicator without the rank that makes it"))?;
        let listed = list(members);
        debug!(
            rank,
            ranks = here,
            "made of another: {descent:?}, to be rank {new} of {ranks}; ranks {listed} are the first"
        );
        let child = Child::derive(&self.engine.membership, descent, members)?;
        // Ranks that wait for this one in a later call are to blame those that keep it here.
        let others: Vec<usize> = members.iter().copied().filter(|&member| member != rank).collect();
        self.engine.membership.add_makes(&others);
        let made = Communicator::join(ranks, child.id(), new, &settings, Some((&child, self)));
        self.engine.membership.end_makes(&others);
        if let (Ok(made), None) = (&made, config) {
            made.set_timeout(self.timeout());
        }
        let made = made
            // The parent may have been aborted since.
            .and_then(|made| child.check().inspect_err(|_| made.abort()).map(|()| made))
            .map_err(|error| in_both_numbers(self.with_waits(error, &others), members))
            .inspect_err(|error| warn!(rank, ranks = here, "made of another: failed: {error}"));
        Ok((made, child.is_made()))
    }

    /// Adds in what others wait that have not come, where they do, in the parent's numbers.
    fn with_waits(&self, error: Error, others: &[usize]) -> Error {
        let Error::InitTimeout { mut what } = error else {
            return error;
        };
        let until = Instant::now() + ASK_ALL;
        for &rank in others.iter().take(MOST_ASKED) {
            let asked = (Instant::now() < until).then(|| self.engine.membership.calls_of(rank));
            if let Some(says @ Says::Waits(_)) = asked.flatten().and_then(|waits| waits.says()) {
                let found = Whereabouts {
                    rank: rank as u32,
                    behind_in: None,
                    says,
                };
                what += &format!("; in the parent {found}");
            }
        }
        Error::InitTimeout { what }
    }
}

/// What a rank told the others.
#[derive(Debug, Clone, Copy)]
struct Told {
    color: i64,
    key: i64,
}

/// The ranks that told this color, as they are numbered in its communicator.
fn members(ranks: &[Told], color: u32) -> Vec<usize> {
    let all = 0..ranks.len();
    let mut members: Vec<usize> = all
        .filter(|&rank| ranks[rank].color == i64::from(color))
        .collect();
    members.sort_by_key(|&rank| ranks[rank].key); // stable: by rank where keys are equal
    members
}

/// Says whom the numbers of the new communicator mean, which the text is about.
fn in_both_numbers(error: Error, members: &[usize]) -> Error {
    let tell = |what: String| {
        format!(
            "{what} (ranks {} of the parent are ranks 0 to {} of the new communicator)",
            list(members),
            members.len() - 1
        )
    };
    match error {
        Error::Init { what } => Error::Init { what: tell(what) },
        Error::InitTimeout { what } => Error::InitTimeout { what: tell(what) },
        other => other,
    }
}

/// Rank numbers for a message, not all of them if there are very many.
fn list(ranks: &[usize]) -> String {
    let shown = ranks.iter().take(SHOWN).map(usize::to_string);
    let more = (ranks.len() > SHOWN).then(|| "...".to_owned());
    shown.chain(more).collect::<Vec<_>>().join(", ")
}

/// What a rank tells that wants no communicator.
const NO_COLOR: i64 = -1;
/// The most ranks that a message lists.
const SHOWN: usize = 32;
/// How many ranks are asked what they do, and how long.
const MOST_ASKED: usize = 64;
const ASK_ALL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::UniqueId;

    #[test]
    fn a_timeout_as_long_as_the_default_is_one_all_the_same() {
        let config = Config {
            timeout: Some(Duration::from_secs(10)),
            ..Config::default()
        };
        let comm = Communicator::init(1, &UniqueId::new().unwrap(), 0, &config).unwrap();
        for timeout in [Config::DEFAULT_TIMEOUT, Config::DEFAULT_INIT_TIMEOUT] {
            comm.set_timeout(timeout);
            assert_eq!(comm.settings(None).unwrap().timeout, Some(timeout));
        }
    }
}
