//! [`Child`]: a communicator that is made of another one. Its name and its secret follow from the parent's, so that every
//! rank has them and nothing secret travels.

use super::{
    Membership, Peer, UniqueId,
    control::{self, Command},
    unique_id::Owner,
};
use crate::{
    net::{CommId, Secret},
    types::{Error, Result},
};
use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// How a communicator comes of another one: each kind is numbered for itself, alike on all its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descent {
    /// Of the ranks that passed `color`.
    Split { number: u64, color: u32 },
    /// Of the ranks that go on without the others, numbered among those of the same ranks: others may have shrunk without
    /// this one. What has stopped the parent does not concern it.
    Shrink { number: u64 },
    /// Of all ranks and of new ones, which are given its id.
    Grow { number: u64 },
}

/// A communicator in the making, of ranks of another one. They meet in the process of the first.
///
/// While they do, what happens to their parent is known here: a rank that dies would be awaited in vain.
pub(crate) struct Child<'p> {
    id: UniqueId,
    descent: Descent,
    parent: &'p Membership,
    /// Its ranks, by the numbers that they have in the parent.
    members: &'p [usize],
    /// Since when it has been hopeless, as far as this rank knows.
    hopeless_since: Mutex<Option<Instant>>,
    /// Whether this rank has come to the meeting, so that it is told there.
    has_come: AtomicBool,
    made: AtomicBool,
}

impl<'p> Child<'p> {
    /// The child that all `members` of `parent` derive alike. From here on the first of them holds the meeting, until the
    /// child is dropped.
    ///
    /// # Errors
    /// [`Error::Internal`].
    pub(crate) fn derive(
        parent: &'p Membership,
        descent: Descent,
        members: &'p [usize],
    ) -> Result<Child<'p>> {
        let child = Child {
            id: id(parent, descent, members)?,
            descent,
            parent,
            members,
            hopeless_since: Mutex::new(None),
            has_come: AtomicBool::new(false),
            made: AtomicBool::new(false),
        };
        if child.holds_the_meeting() {
            let (comm, secret) = (child.id.comm, child.id.secret.clone());
            let again = !matches!(descent, Descent::Split { .. });
            control::start()?.post(Command::Meet { comm, secret, again })?;
        }
        Ok(child)
    }

    /// By what its ranks join.
    pub(crate) fn id(&self) -> &UniqueId {
        &self.id
    }

    /// Takes note that this rank has come to the meeting. What there is to say of a rank that is gone it hears there from now on.
    pub(super) fn note_come(&self) {
        self.has_come.store(true, Relaxed);
        *self.hopeless_since() = None;
    }

    /// Takes note that it was made, whether this rank gets into it or not.
    pub(super) fn note_made(&self) {
        self.made.store(true, Relaxed);
    }

    /// Whether it was made, so that the next one is another.
    pub(crate) fn is_made(&self) -> bool {
        self.made.load(Relaxed)
    }

    /// That nothing is to come of it, nor of anything else of the parent, where this rank's program has aborted that.
    fn forsaken(&self) -> Option<String> {
        let what = "aborted the parent communicator, of which nothing is made any more";
        let tell = || format!("rank {} {what}", self.parent.rank());
        self.parent.is_aborted().then(tell)
    }

    /// # Errors
    /// [`Error::Init`] where this rank's program has aborted the parent.
    pub(crate) fn check(&self) -> Result<()> {
        self.forsaken().map_or(Ok(()), |what| Err(Error::Init { what }))
    }

    /// Why it will not come about, if something has happened in the parent; in the parent's numbers.
    pub(super) fn obstacle(&self) -> Option<String> {
        let parent = self.parent;
        let verdict = || match self.descent {
            Descent::Shrink { .. } => None,
            Descent::Split { .. } | Descent::Grow { .. } => parent.verdict(),
        };
        let before = "before all ranks had joined the new communicator";
        if let Some(why) = self.forsaken() {
            return Some(why);
        }
        if !parent.trouble() && !parent.departures() {
            return None;
        }
        let loss = |&rank: &usize| match parent.peer(rank) {
            Peer::Dead { how, .. } => Some(format!("rank {rank} of the parent was lost ({how}) {before}")),
            Peer::Alive | Peer::Left { .. } => None,
        };
        let holds = self.holds_the_meeting();
        let has_come = self.has_come.load(Relaxed);
        // Who has come is answered, whatever becomes of the parent: who holds the meeting may leave that, or end it, while an answer is
        // under way. Were it given up, others would have the new communicator with this rank in it.
        if has_come && !holds {
            return self.members.first().and_then(loss);
        }
        let lost = || self.members.iter().find_map(loss);
        // Who does not hold the meeting is told of the others there. Who is still on its way to a shrink may look for it in vain: who
        // holds it may have left them out already, and wait at another one.
        let on_its_way = matches!(self.descent, Descent::Shrink { .. }) && !has_come;
        let concerns = |rank: usize| on_its_way || holds || rank == self.members[0];
        let mut others = self.members.iter().copied().filter(|&rank| rank != parent.rank());
        let gone = others.find(|&rank| concerns(rank) && parent.peer(rank) != Peer::Alive);
        match (gone, verdict()) {
            (Some(rank), _) => {
                Some(lost().unwrap_or_else(|| format!("rank {rank} of the parent left it {before}")))
            }
            (None, Some(cause)) => {
                Some(lost().unwrap_or_else(|| format!("the parent communicator was stopped: {cause}")))
            }
            (None, None) => None,
        }
    }

    /// Whether to wait no longer for the meeting's answer. Asked again and again by who waits.
    ///
    /// Who holds the meeting ends it, so that all are answered alike. The others give that some time: an answer may be under
    /// way of a rank that got it, too, and has left the parent since.
    pub(super) fn hopeless(&self) -> bool {
        let Some(why) = self.obstacle() else {
            return false;
        };
        let mut since = self.hopeless_since();
        if since.is_none() && self.holds_the_meeting() {
            self.adjourn(why);
        }
        since.get_or_insert_with(Instant::now).elapsed() >= ANSWER_WAIT
    }

    fn hopeless_since(&self) -> MutexGuard<'_, Option<Instant>> {
        self.hopeless_since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn holds_the_meeting(&self) -> bool {
        self.members.first() == Some(&self.parent.rank())
    }

    fn adjourn(&self, why: String) {
        // If that fails the control thread has ended, and with it the meeting.
        let _ = self.id.adjourn(why);
    }
}

impl Drop for Child<'_> {
    /// Nobody waits for a rank 0 that has failed.
    fn drop(&mut self) {
        if self.holds_the_meeting() {
            self.adjourn("rank 0 gave up before all ranks had joined: look at its error".to_owned());
        }
    }
}

/// The id of a child of `parent` and its `members`, who meet in the process of the first of them.
///
/// # Errors
/// [`Error::Internal`].
fn id(parent: &Membership, descent: Descent, members: &[usize]) -> Result<UniqueId> {
    let (comm, secret) = keys(&parent.secret_of_all()?, &parent.comm(), descent, members)?;
    let addresses = members.first().map(|&rank| parent.addresses(rank));
    Ok(UniqueId {
        addresses: addresses.ok_or_else(|| Error::internal("a communicator without ranks"))?,
        comm,
        secret,
        owner: Owner::DerivedRank0,
        host: None,
    })
}

/// The same for ranks that are to come by a grow, from wherever they are: all addresses of the process of rank 0.
///
/// # Errors
/// [`Error::Internal`].
pub(crate) fn id_for_new_ranks(parent: &Membership, number: u64) -> Result<UniqueId> {
    let addresses = parent.addresses_for_strangers(0);
    let id = id(parent, Descent::Grow { number }, &[0])?;
    Ok(UniqueId { addresses, ..id })
}

/// The name of a child, and its secret.
fn keys(parent: &Secret, name: &CommId, descent: Descent, members: &[usize]) -> Result<(CommId, Secret)> {
    let (label, number, whose): (&[u8], _, _) = match descent {
        Descent::Split { number, color } => (b"ccl split 1 ", number, color.to_le_bytes().to_vec()),
        Descent::Shrink { number } => {
            let members = members.iter().flat_map(|&rank| (rank as u32).to_le_bytes());
            (b"ccl shrink 1 ", number, members.collect())
        }
        Descent::Grow { number } => (b"ccl grow 1 ", number, Vec::new()),
    };
    let derive = |what: &[u8]| {
        let derived = parent.derive(&[label, what, name, &number.to_le_bytes(), &whose]);
        derived.ok_or_else(|| Error::internal("HMAC refused a key"))
    };
    let mut comm = CommId::default();
    comm.copy_from_slice(&derive(b"name  ")?[..16]);
    Ok((comm, Secret::new(&*derive(b"secret")?)))
}

/// How long the meeting's answer is awaited after it has become known that the parent is in trouble.
const ANSWER_WAIT: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn children_differ_in_name_and_secret_by_all_that_they_are_made_of() {
        let secrets = [Secret::new(&[1; 32]), Secret::new(&[2; 32])];
        let mut seen = HashSet::new();
        for (secret, name) in secrets
            .iter()
            .flat_map(|s| [[3; 16], [4; 16]].map(|name| (s, name)))
        {
            let splits = [(0, 0), (0, 1), (1, 0), (1 << 32, 0), (0, u32::MAX)];
            let splits = splits.map(|(number, color)| Descent::Split { number, color });
            let others = [0, 1].map(|number| [Descent::Shrink { number }, Descent::Grow { number }]);
            let descents = splits.into_iter().chain(others.into_iter().flatten());
            let all = descents.map(|descent| (descent, vec![0, 2]));
            for (descent, members) in all.chain([(Descent::Shrink { number: 0 }, vec![0, 3])]) {
                let (comm, child) = keys(secret, &name, descent, &members).unwrap();
                let again = keys(secret, &name, descent, &members).unwrap();
                assert_eq!((comm, child.bytes()), (again.0, again.1.bytes()));
                let halves = child.bytes().split_at(16);
                assert!(seen.insert(comm) && seen.insert(halves.0.try_into().unwrap()));
                assert!(seen.insert(halves.1.try_into().unwrap()));
            }
        }
    }
}
