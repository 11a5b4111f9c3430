//! What ranks do when some of them are gone, or more are to come: [`Communicator::revoke`], [`Communicator::shrink`] and
//! [`Communicator::grow`].

use super::{Communicator, Config};
use crate::{
    bootstrap::{Descent, Peer, UniqueId, id_for_new_ranks},
    types::{Cause, Error, Result, check_rank},
};
use std::{
    collections::BTreeSet,
    sync::{
        PoisonError,
        atomic::Ordering::{Acquire, Release},
    },
    thread,
    time::{Duration, Instant},
};

/// # Going on with fewer ranks, or with more
impl Communicator {
    /// Stops the communicator on all ranks: running calls end soon with an error that names this rank, and later ones are
    /// refused, as after any failure. Never waits for a running call. The communicator is still good for
    /// [`Communicator::shrink`]. Of processes that are stopped see [`Communicator::abort`].
    pub fn revoke(&self) {
        self.engine.membership.end(Cause::Revoked {
            rank: self.rank() as u32,
        });
    }

    /// Makes a communicator of this one's ranks without those that are `excluded`, in the order of their ranks. Each rank
    /// that is not excluded calls it with the same ones; those that are need not do anything, nor be alive. Where `excluded`
    /// is empty, those are left out that have died or left as far as this rank knows.
    ///
    /// It works after a failure, too, and needs nothing of the ranks that failed. This communicator stays as it is.
    /// Without `config` the new one has this one's settings and its present timeout. The ranks wait for one another as long as for init, and
    /// anew where others than those that were known have died or left.
    ///
    /// # Errors
    /// [`Error::Invalid`] for ranks that there are not, and for this one; [`Error::Usage`] for settings that do not exist;
    /// [`Error::Init`] when one of those that go on was lost: exclude it, too, and try again, which is done here where `excluded` is
    /// empty; [`Error::InitTimeout`] when they do not all come, or do not exclude the same ones. A rank that comes when the others
    /// have given up is told what they were told.
    pub fn shrink(&self, excluded: &[usize], config: Option<&Config>) -> Result<Communicator> {
        self.shrunk(excluded, config, false)
    }

    /// The same after [`Communicator::revoke`], if nothing is wrong with the arguments.
    pub(crate) fn revoke_and_shrink(
        &self,
        excluded: &[usize],
        config: Option<&Config>,
    ) -> Result<Communicator> {
        self.shrunk(excluded, config, true)
    }

    fn shrunk(&self, excluded: &[usize], config: Option<&Config>, revoke: bool) -> Result<Communicator> {
        let membership = &self.engine.membership;
        membership.check()?;
        self.settings(config)?;
        self.check_excluded(excluded)?;
        if revoke {
            self.revoke();
        }
        if !excluded.is_empty() {
            return self.without(&excluded.iter().copied().collect(), config);
        }
        let (began, patience) = (Instant::now(), self.settings(config)?.check()?.init);
        let mut gone = self.gone();
        loop {
            let made = self.without(&gone, config);
            // Others may have known more of the dead, or some have died since.
            let is_lost = matches!(made, Err(Error::Init { .. }))
                && began.elapsed() < patience
                && !membership.is_aborted();
            match is_lost.then(|| self.more_gone(&gone)).flatten() {
                Some(more) => gone = more,
                None => return made,
            }
        }
    }

    /// # Errors
    /// As [`Communicator::shrink`].
    pub(crate) fn check_excluded(&self, excluded: &[usize]) -> Result<()> {
        let (rank, ranks) = (self.rank(), self.ranks());
        if let Some(strange) = excluded.iter().find(|&&excluded| excluded >= ranks) {
            return Err(Error::invalid(format!(
                "rank {strange} cannot be excluded: this communicator has ranks 0 to {}",
                ranks - 1
            )));
        }
        if excluded.contains(&rank) {
            return Err(Error::invalid(format!(
                "rank {rank} excludes itself: only ranks that go on call this"
            )));
        }
        Ok(())
    }

    /// The ranks that have died or left, if they are others than `known` or are within a moment.
    fn more_gone(&self, known: &BTreeSet<usize>) -> Option<BTreeSet<usize>> {
        let until = Instant::now() + MORE_NEWS;
        loop {
            let gone = self.gone();
            if gone != *known {
                return Some(gone);
            }
            let (membership, now) = (&self.engine.membership, Instant::now());
            let is_quiet = !membership.trouble() && !membership.departures();
            if now > until || is_quiet && now > until - MORE_NEWS + NEWS {
                return None;
            }
            thread::sleep(NEWS / 10);
        }
    }

    fn without(&self, excluded: &BTreeSet<usize>, config: Option<&Config>) -> Result<Communicator> {
        let members: Vec<usize> = (0..self.ranks())
            .filter(|rank| !excluded.contains(rank))
            .collect();
        let mut shrinks = self.shrinks.lock().unwrap_or_else(PoisonError::into_inner);
        let number = shrinks.get(&members).copied().unwrap_or(0);
        let (made, is_made) = self.meet(Descent::Shrink { number }, &members, members.len(), config)?;
        // The ranks may try again at different times.
        if is_made {
            shrinks.insert(members, number + 1);
        }
        made
    }

    /// The ranks that have died or left, as far as is known.
    fn gone(&self) -> BTreeSet<usize> {
        let membership = &self.engine.membership;
        if membership.trouble() || membership.departures() {
            thread::sleep(NEWS); // others that ended at the same time may not be known yet
        }
        (0..self.ranks())
            .filter(|&rank| rank != self.rank() && membership.peer(rank) != Peer::Alive)
            .collect()
    }

    /// The id by which new ranks join when this communicator is next grown. Any rank may ask for it, and passes it to the
    /// new ranks, which call [`Communicator::init`] with it and with numbers from [`Communicator::ranks`] on. They can be on other
    /// hosts if the ranks of this communicator listen at a network, as they do where its id was made by [`UniqueId::new`] on a
    /// host that has one. It holds a secret, as any id.
    ///
    /// # Errors
    /// [`Error::Closed`] after a failure; [`Error::Usage`] in a forked child.
    pub fn grow_id(&self) -> Result<UniqueId> {
        self.check_open()?;
        let number = self.grows.load(Acquire);
        id_for_new_ranks(&self.engine.membership, number)
    }

    /// Makes a communicator of `ranks` ranks: all of this one's, with the numbers that they have here, and new ones, which join by
    /// [`Communicator::grow_id`]. Each rank of this communicator calls it; it returns when all have and the new ranks have come.
    /// This communicator stays as it is. Without `config` the new one has this one's settings, which must fit those of the new
    /// ranks, and its present timeout.
    ///
    /// # Errors
    /// [`Error::Invalid`] for fewer ranks than there are; as [`Communicator::init`].
    pub fn grow(&self, ranks: usize, config: Option<&Config>) -> Result<Communicator> {
        self.check_open()?;
        self.settings(config)?;
        self.check_grow(ranks)?;
        let _one_at_a_time = self.shrinks.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.grows.load(Acquire);
        let members: Vec<usize> = (0..self.ranks()).collect();
        let (made, is_made) = self.meet(Descent::Grow { number }, &members, ranks, config)?;
        if is_made {
            self.grows.store(number + 1, Release);
        }
        made
    }

    /// That it can become one of so many ranks.
    pub(crate) fn check_grow(&self, ranks: usize) -> Result<()> {
        if ranks < self.ranks() {
            return Err(Error::invalid(format!(
                "{ranks} ranks are fewer than the {} that there are: the number is that of all ranks, new and old",
                self.ranks()
            )));
        }
        check_rank(self.rank(), ranks)
    }

    /// # Errors
    /// What closed it.
    fn check_open(&self) -> Result<()> {
        self.engine.membership.check()?;
        self.failure().map_or(Ok(()), |cause| Err(Error::Closed(cause)))
    }
}

/// How long word of ranks that ended at the same time may take.
const NEWS: Duration = Duration::from_millis(100);
/// How long after a meeting that failed, as it does when the connection of a rank ends, before anything is known of its end.
const MORE_NEWS: Duration = Duration::from_millis(500);
