//! [`Places`]: the meeting places of the ids that this process made.

use super::{
    super::{meeting::Meeting, messages::Answer},
    poller::Token,
};
use crate::{
    net::{CommId, Hello, MEETING, Packed, Role, Secret},
    types::MAX_RANKS,
};
use std::{
    collections::{BTreeMap, HashMap, VecDeque, btree_map::Entry},
    net::SocketAddr,
    time::{Duration, Instant},
};

/// A meeting place, open until its meeting has ended.
pub(super) struct Place {
    pub(super) secret: Secret,
    /// Whether there is another meeting of that name after one that has failed.
    again: bool,
    pub(super) state: State,
}

impl Place {
    /// Whether nobody has come to it yet.
    fn is_lonely(&self) -> bool {
        match &self.state {
            State::Open { meeting, joiners } => joiners.is_empty() && meeting.deadline().is_none(),
            State::Over(_) | State::Failed { .. } => false,
        }
    }
}

/// Whether ranks may still come.
pub(super) enum State {
    Open {
        meeting: Meeting,
        /// The connections of those who came.
        joiners: Vec<Token>,
    },
    /// What those are told who come too late.
    Over(Packed),
    /// The same where there may be another meeting.
    Failed {
        answer: Packed,
        heard: BTreeMap<u32, Heard>,
    },
}

/// What a rank has heard of a meeting that has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// Why: what it comes to is the next one.
    Why,
    /// Nothing yet, since it came; that may be to the next one, too.
    Nothing { since: Instant },
}

/// All of them, by communicator.
#[derive(Default)]
pub(super) struct Places {
    all: HashMap<CommId, Place>,
    /// Those that are over, oldest first.
    over: VecDeque<CommId>,
    /// Those of ids to which nobody may have come yet, oldest first.
    lonely: VecDeque<CommId>,
}

impl Places {
    pub(super) fn open(&mut self, comm: CommId, secret: Secret, again: bool) {
        let state = State::Open {
            meeting: Meeting::default(),
            joiners: Vec::new(),
        };
        self.over.retain(|other| *other != comm);
        self.all.insert(comm, Place { secret, again, state });
        if !again {
            self.lonely.push_back(comm);
            self.forget_lonely();
        }
    }

    /// Where there are too many to which nobody has come, as where a program makes ids for others that do not use them, the oldest is
    /// forgotten.
    fn forget_lonely(&mut self) {
        if self.lonely.len() <= MOST_LONELY {
            return;
        }
        let all = &self.all;
        self.lonely
            .retain(|comm| all.get(comm).is_some_and(Place::is_lonely));
        if self.lonely.len() > MOST_LONELY {
            self.lonely.pop_front().map(|oldest| self.all.remove(&oldest));
        }
    }

    pub(super) fn get_mut(&mut self, comm: &CommId) -> Option<&mut Place> {
        self.all.get_mut(comm)
    }

    /// What a rank must hold to come in, if it may. To a meeting that has failed nobody may at once: the next one may be about to begin.
    pub(super) fn secret(&mut self, hello: &Hello) -> Option<Secret> {
        let place = self.all.get_mut(&hello.comm).filter(|_| hello.to == MEETING)?;
        if let State::Failed { heard, .. } = &mut place.state {
            let now = Instant::now();
            let is_rank = (hello.from as usize) < MAX_RANKS;
            match heard.entry(hello.from) {
                Entry::Vacant(entry) => _ = is_rank.then(|| entry.insert(Heard::Nothing { since: now })),
                Entry::Occupied(entry) => match *entry.get() {
                    Heard::Nothing { since } if now - since > NEXT_WAIT => return Some(place.secret.clone()),
                    Heard::Nothing { .. } | Heard::Why => {}
                },
            }
            return None;
        }
        Some(place.secret.clone())
    }

    /// Somebody at `from` said `hello` and did not hold the secret.
    pub(super) fn denied(&mut self, hello: &Hello, from: Option<SocketAddr>) {
        if hello.role == Role::Join
            && let Some(State::Open { meeting, .. }) =
                self.all.get_mut(&hello.comm).map(|place| &mut place.state)
        {
            meeting.deny(hello.from, from.map(|at| at.ip()));
        }
    }

    /// Somebody at `from` speaks another version of the protocol. Nobody knows which meeting it meant.
    pub(super) fn misunderstood(&mut self, version: u32, from: Option<SocketAddr>) {
        for place in self.all.values_mut() {
            if let State::Open { meeting, .. } = &mut place.state {
                meeting.misunderstand(version, from.map(|at| at.ip()));
            }
        }
    }

    /// Ends a meeting with `answer`; returns that and the connections to send it to.
    pub(super) fn close(&mut self, comm: CommId, answer: &Answer) -> Option<(Packed, Vec<Token>)> {
        let place = self.all.get_mut(&comm)?;
        let State::Open { joiners, meeting } = &mut place.state else {
            return None;
        };
        let heard = meeting.ranks().map(|rank| (rank, Heard::Why)).collect();
        let joiners = std::mem::take(joiners);
        let refused = |what: &str| Answer::Refused {
            late: false,
            what: what.to_owned(),
        };
        // Only settings or versions that fill megabytes make an answer too long; this one is short.
        let packed = Packed::message(answer)
            .or_else(|_| Packed::message(&refused("the ranks' settings differ")))
            .ok()?;
        place.state = match answer {
            Answer::Table(_) | Answer::Spent => State::Over(Packed::message(&Answer::Spent).ok()?),
            Answer::Refused { .. } if place.again => State::Failed {
                answer: packed.clone(),
                heard,
            },
            Answer::Refused { .. } => State::Over(packed.clone()),
        };
        self.over.retain(|other| *other != comm);
        self.over.push_back(comm);
        if self.over.len() > REMEMBERED {
            self.over.pop_front().map(|oldest| self.all.remove(&oldest));
        }
        Some((packed, joiners))
    }

    /// When the next meeting runs out of time.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.meetings()
            .filter_map(|(_, meeting)| meeting.deadline())
            .min()
    }

    /// The answers to the meetings that have run out of time; `closed` is why this process lets nobody in, if that is so.
    pub(super) fn expired(&self, now: Instant, closed: Option<&str>) -> Vec<(CommId, Answer)> {
        let late = self
            .meetings()
            .filter(|(_, m)| m.deadline().is_some_and(|d| d <= now));
        late.filter_map(|(comm, m)| Some((*comm, m.expire(closed)?)))
            .collect()
    }

    /// Those to which somebody has come.
    pub(super) fn under_way(&self) -> impl Iterator<Item = CommId> {
        let under_way = self
            .meetings()
            .filter(|(_, meeting)| meeting.deadline().is_some());
        under_way.map(|(comm, _)| *comm)
    }

    fn meetings(&self) -> impl Iterator<Item = (&CommId, &Meeting)> {
        self.all.iter().filter_map(|(comm, place)| match &place.state {
            State::Open { meeting, .. } => Some((comm, meeting)),
            State::Over(_) | State::Failed { .. } => None,
        })
    }
}

/// How long a rank that comes when a meeting has failed waits for the next one before it is told why.
const NEXT_WAIT: Duration = Duration::from_millis(500);

/// How many meetings that are over are remembered, so that latecomers learn why.
const REMEMBERED: usize = 64;

/// How many ids may be open to which nobody has come: more than a program makes beforehand.
const MOST_LONELY: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::meeting::tests::join;

    #[test]
    fn of_too_many_ids_that_nobody_uses_the_oldest_is_forgotten() {
        let mut places = Places::default();
        let comm = |number: usize| {
            let mut comm = CommId::default();
            comm[..8].copy_from_slice(&number.to_le_bytes());
            comm
        };
        let open = |places: &mut Places, number| places.open(comm(number), Secret::new(&[1; 32]), false);
        (0..MOST_LONELY).for_each(|number| open(&mut places, number));
        let State::Open { meeting, .. } = &mut places.get_mut(&comm(0)).unwrap().state else {
            panic!("it is over")
        };
        meeting.arrive(0, join(2, 2), None, Instant::now());
        (MOST_LONELY..MOST_LONELY + 2).for_each(|number| open(&mut places, number));
        let there: Vec<bool> = [0, 1, 2, MOST_LONELY + 1]
            .map(|number| places.get_mut(&comm(number)).is_some())
            .to_vec();
        assert_eq!(there, [true, false, true, true]);
        assert_eq!(places.all.len(), MOST_LONELY + 1);
    }
}
