//! [`View`]: what one rank knows of the others, and what it owes its neighbours in the control tree.
//!
//! A pure state machine: words and observations go in, [`Effect`]s come out. News of deaths and departures floods the
//! tree; causes travel up to the lowest rank, which makes the first that it gets the verdict and floods that.
//!
//! A departure is also *settled*, so that the leaver knows when its process may end without being taken for dead: each
//! rank tells its neighbour on the way to the leaver [`Word::Heard`] once all its other neighbours have told it the
//! same; so everybody on its side of that edge has heard. When the tree changes, it tells its new neighbour.
//!
//! A rank that has left stays in the tree until its process is gone, or until everybody has left: it still passes
//! words on. Otherwise the tree would be rebuilt over and over while all ranks leave, as they do at the end.

use super::{
    messages::{Made, Word},
    tree,
};
use crate::types::Cause;
use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
};

/// What is known of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    Member,
    /// Has left in order; its process passes words on.
    Left,
    /// Has left in order and its process is gone.
    Gone,
    /// Its process died before it had left: how that was seen.
    Dead(String),
}

/// What is to be done after a step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Send to a neighbour with whom there is a connection.
    Send(u32, Word),
    /// News for this rank: another died.
    Died(u32, String),
    /// News for this rank: another, or it itself, left in order.
    Left(u32, Option<Made>),
    /// News for this rank: what stopped the communicator.
    Verdict(Cause),
}

/// See the module's text.
#[derive(Debug)]
pub(super) struct View {
    me: u32,
    standing: Vec<Standing>,
    /// The lowest rank in the tree, and our neighbours there, connected or not.
    lowest: u32,
    parent: Option<u32>,
    children: Vec<u32>,
    /// Ranks with whom there is a connection.
    connected: BTreeSet<u32>,
    /// By rank that has left: what it had called, if it said so.
    made: BTreeMap<u32, Made>,
    /// By rank that has left: the neighbours on whose side everybody has heard of it.
    heard: BTreeMap<u32, BTreeSet<u32>>,
    /// By rank that has left: the neighbour on the way to it whom we told so.
    told: BTreeMap<u32, u32>,
    /// The ranks that have left for whom that is still to be done, or, for this rank, still to be told by others.
    unsettled: BTreeSet<u32>,
    /// The first cause that this rank has or has been given to pass up, and the parent to whom it went.
    raised: Option<Cause>,
    raised_to: Option<u32>,
    verdict: Option<Cause>,
    effects: Vec<Effect>,
    /// Whether there may be others near than when that was asked the last time.
    moved: bool,
}

impl View {
    pub(super) fn new(me: u32, ranks: u32) -> View {
        let mut view = View {
            me,
            standing: vec![Standing::Member; ranks as usize],
            lowest: 0,
            parent: None,
            children: Vec::new(),
            connected: BTreeSet::new(),
            made: BTreeMap::new(),
            heard: BTreeMap::new(),
            told: BTreeMap::new(),
            unsettled: BTreeSet::new(),
            raised: None,
            raised_to: None,
            verdict: None,
            effects: Vec::new(),
            moved: false,
        };
        view.rebuild();
        view
    }

    /// What is to be done; empties the list.
    pub(super) fn effects(&mut self) -> Vec<Effect> {
        mem::take(&mut self.effects)
    }

    /// Whether there may be other neighbours than at the last call.
    pub(super) fn has_moved(&mut self) -> bool {
        mem::take(&mut self.moved)
    }

    /// The neighbours in the tree, connected or not, and who else is connected.
    pub(super) fn near(&self) -> impl Iterator<Item = u32> {
        self.parent
            .iter()
            .chain(&self.children)
            .chain(&self.connected)
            .copied()
    }

    /// Whether there are connections with all neighbours in the tree.
    pub(super) fn is_woven(&self) -> bool {
        let mut neighbours = self.parent.iter().chain(&self.children);
        neighbours.all(|peer| self.connected.contains(peer))
    }

    /// The rank to whom this one should have a connection that it makes itself, if there is none yet.
    pub(super) fn wants(&self) -> Option<u32> {
        self.parent.filter(|p| !self.connected.contains(p))
    }

    /// The ranks that should make a connection to this one, and have not yet.
    pub(super) fn awaited(&self) -> impl Iterator<Item = u32> {
        let children = self.children.iter().copied();
        children.filter(|child| !self.connected.contains(child))
    }

    /// Whether everybody has heard of all departures that this rank knows of, its own included, as far as it can
    /// tell: its process may then end.
    pub(super) fn settled(&self) -> bool {
        self.unsettled.is_empty()
    }

    /// Whether nobody, this rank included, takes part any more.
    pub(super) fn finished(&self) -> bool {
        self.settled() && self.nobody_left()
    }

    /// There is a connection to `peer`: tell it all.
    pub(super) fn connect(&mut self, peer: u32) {
        self.connected.insert(peer);
        self.moved = true;
        for (rank, standing) in (0..).zip(&self.standing) {
            let word = match standing {
                Standing::Left | Standing::Gone if rank != peer => Word::Left {
                    rank,
                    made: self.made.get(&rank).copied(),
                },
                Standing::Dead(how) if rank != peer => Word::Died {
                    rank,
                    how: how.clone(),
                },
                _ => continue,
            };
            self.effects.push(Effect::Send(peer, word));
        }
        if let Some(verdict) = &self.verdict {
            self.effects
                .push(Effect::Send(peer, Word::Verdict(verdict.clone())));
        }
        self.pass_up();
        self.settle_all();
    }

    /// The connection to `peer` has ended.
    pub(super) fn disconnect(&mut self, peer: u32) {
        self.connected.remove(&peer);
        self.told.retain(|_, to| *to != peer);
        if self.raised_to == Some(peer) {
            self.raised_to = None;
        }
    }

    /// `peer` said `word`.
    pub(super) fn hear(&mut self, peer: u32, word: Word) {
        match word {
            Word::Left { rank, made } if self.knows(rank) => self.depart(rank, made, Some(peer)),
            Word::Heard { rank } if self.knows(rank) => {
                self.heard.entry(rank).or_default().insert(peer);
                self.depart(rank, None, Some(peer));
                self.settle(rank);
            }
            Word::Died { rank, how } if self.knows(rank) && rank != self.me => {
                self.lose_told(rank, how, Some(peer));
            }
            Word::Raise(cause) => self.raise(cause),
            Word::Verdict(cause) => self.conclude(cause, Some(peer)),
            Word::Left { .. } | Word::Heard { .. } | Word::Died { .. } => (), // of no rank that there is
        }
    }

    /// The process of `rank` has gone, as seen `how`: a death unless it had left.
    pub(super) fn lose(&mut self, rank: u32, how: String) {
        if self.knows(rank) && rank != self.me {
            self.lose_told(rank, how, None);
        }
    }

    /// This rank leaves.
    pub(super) fn leave(&mut self, made: Option<Made>) {
        self.depart(self.me, made, None);
    }

    /// Something stopped this rank, or one below it.
    pub(super) fn raise(&mut self, cause: Cause) {
        self.raised.get_or_insert(cause);
        self.pass_up();
    }

    /// `rank` has left, as `peer` says, or as it itself says when it is this rank.
    fn depart(&mut self, rank: u32, made: Option<Made>, peer: Option<u32>) {
        if self.standing[rank as usize] != Standing::Member {
            return;
        }
        self.standing[rank as usize] = Standing::Left;
        self.moved = true; // another one may be the next
        if let Some(made) = made {
            self.made.insert(rank, made);
        }
        self.effects.push(Effect::Left(rank, made));
        self.flood(&Word::Left { rank, made }, [Some(rank), peer]);
        if self.nobody_left() {
            self.settle_all();
        } else {
            self.settle(rank);
        }
    }

    fn lose_told(&mut self, rank: u32, how: String, peer: Option<u32>) {
        match self.standing[rank as usize] {
            Standing::Member => {
                self.standing[rank as usize] = Standing::Dead(how.clone());
                self.effects.push(Effect::Died(rank, how.clone()));
                self.flood(&Word::Died { rank, how }, [Some(rank), peer]);
            }
            // That somebody else lost sight of a rank that has left says nothing about our way to it.
            Standing::Left if peer.is_none() => self.standing[rank as usize] = Standing::Gone,
            _ => return,
        }
        self.disconnect(rank);
        self.rebuild();
        self.pass_up();
        self.settle_all();
    }

    fn conclude(&mut self, cause: Cause, peer: Option<u32>) {
        if self.verdict.is_none() {
            self.verdict = Some(cause.clone());
            self.effects.push(Effect::Verdict(cause.clone()));
            self.flood(&Word::Verdict(cause), [peer, None]);
        }
    }

    /// Gives the raised cause to the parent, or decides if there is none.
    fn pass_up(&mut self) {
        let (None, Some(cause)) = (&self.verdict, &self.raised) else {
            return;
        };
        let cause = cause.clone();
        match self.parent {
            None => self.conclude(cause, None),
            Some(parent) if self.connected.contains(&parent) && self.raised_to != Some(parent) => {
                self.raised_to = Some(parent);
                self.effects.push(Effect::Send(parent, Word::Raise(cause)));
            }
            Some(_) => (),
        }
    }

    /// Sees how far the news of the departure of `rank` has got.
    fn settle(&mut self, rank: u32) {
        if self.standing[rank as usize] != Standing::Left {
            self.heard.remove(&rank); // its process is gone, or it had not left after all: nobody waits
            self.unsettled.remove(&rank);
            return;
        }
        let toward = self.toward(rank);
        let heard = self.heard.get(&rank);
        let waits = |n: &u32| Some(*n) != toward && heard.is_none_or(|h| !h.contains(n));
        let nobody = self.nobody_left(); // who could mind
        let mut settled = nobody || !self.parent.iter().chain(&self.children).any(waits);
        if let Some(next) = toward.filter(|_| settled) {
            if self.connected.contains(&next) && self.told.insert(rank, next) != Some(next) {
                self.effects.push(Effect::Send(next, Word::Heard { rank }));
            }
            settled = nobody || self.told.get(&rank) == Some(&next);
        }
        if settled {
            self.unsettled.remove(&rank);
        } else {
            self.unsettled.insert(rank);
        }
    }

    fn settle_all(&mut self) {
        for rank in 0..self.standing.len() as u32 {
            if matches!(self.standing[rank as usize], Standing::Left | Standing::Gone) {
                self.settle(rank);
            }
        }
    }

    /// The neighbour on the way to `rank`, if that is another.
    fn toward(&self, rank: u32) -> Option<u32> {
        if rank == self.me {
            return None;
        }
        tree::toward(rank, self.me, self.lowest, |r| self.there(r))
    }

    /// Whether `rank` is in the tree.
    pub(super) fn there(&self, rank: u32) -> bool {
        matches!(self.standing[rank as usize], Standing::Member | Standing::Left)
    }

    /// Whether `rank` is in the tree and has not left.
    pub(super) fn is_member(&self, rank: u32) -> bool {
        matches!(self.standing[rank as usize], Standing::Member)
    }

    fn nobody_left(&self) -> bool {
        !self.standing.contains(&Standing::Member)
    }

    fn flood(&mut self, word: &Word, except: [Option<u32>; 2]) {
        let to = self.connected.iter().filter(|&&p| !except.contains(&Some(p)));
        let sends = to.map(|&p| Effect::Send(p, word.clone()));
        self.effects.extend(sends);
    }

    fn rebuild(&mut self) {
        let ranks = self.standing.len() as u32;
        self.lowest = (0..ranks).find(|&r| self.there(r)).unwrap_or(self.me);
        (self.parent, self.children) = tree::neighbours(self.me, ranks, self.lowest, |r| self.there(r));
        self.moved = true;
    }

    fn knows(&self, rank: u32) -> bool {
        (rank as usize) < self.standing.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn cause(rank: u32) -> Cause {
        Cause::Aborted { rank }
    }

    /// Processes with a rank each and in-order connections between them, whose steps `choose` orders.
    struct World<F> {
        views: Vec<Option<View>>,
        wires: BTreeMap<(u32, u32), VecDeque<Word>>,
        left: Vec<BTreeSet<u32>>,
        died: Vec<BTreeSet<u32>>,
        /// Who took whom for dead before it had left itself.
        minded: Vec<(u32, u32)>,
        verdicts: Vec<Option<Cause>>,
        choose: F,
    }

    impl<F: FnMut(usize) -> usize> World<F> {
        fn new(n: u32, choose: F) -> Self {
            World {
                views: (0..n).map(|r| Some(View::new(r, n))).collect(),
                wires: BTreeMap::new(),
                left: vec![BTreeSet::new(); n as usize],
                died: vec![BTreeSet::new(); n as usize],
                minded: Vec::new(),
                verdicts: vec![None; n as usize],
                choose,
            }
        }

        fn view(&mut self, rank: u32) -> &mut View {
            self.views[rank as usize].as_mut().unwrap()
        }

        fn alive(&self, rank: u32) -> bool {
            self.views[rank as usize].is_some()
        }

        fn apply(&mut self, rank: u32) {
            let me = rank as usize;
            for effect in self.view(rank).effects() {
                match effect {
                    Effect::Send(to, word) => {
                        if let Some(wire) = self.wires.get_mut(&(rank, to)) {
                            wire.push_back(word);
                        }
                    }
                    Effect::Died(r, _) => {
                        assert!(self.died[me].insert(r));
                        if !self.left[me].contains(&rank) {
                            self.minded.push((rank, r));
                        }
                    }
                    Effect::Left(r, _) => assert!(self.left[me].insert(r)),
                    Effect::Verdict(c) => assert!(self.verdicts[me].replace(c).is_none()),
                }
            }
        }

        /// One step of those possible, or false: a word arrives or a connection is made.
        fn step(&mut self) -> bool {
            type Step = (u32, u32, bool);
            let ready =
                |((a, b), w): (&(u32, u32), &VecDeque<Word>)| (!w.is_empty()).then_some((*a, *b, true));
            let mut steps: Vec<Step> = self.wires.iter().filter_map(ready).collect();
            for rank in 0..self.views.len() as u32 {
                let wants = self.views[rank as usize].as_ref().and_then(View::wants);
                steps.extend(wants.filter(|&p| self.alive(p)).map(|p| (rank, p, false)));
            }
            if steps.is_empty() {
                return false;
            }
            let (a, b, word) = steps[(self.choose)(steps.len())];
            if word {
                let word = self.wires.get_mut(&(a, b)).unwrap().pop_front().unwrap();
                self.view(b).hear(a, word);
                self.apply(b);
            } else {
                for (x, y) in [(a, b), (b, a)] {
                    self.wires.insert((x, y), VecDeque::new());
                    self.view(x).connect(y);
                }
                self.apply(a);
                self.apply(b);
            }
            true
        }

        /// The process of `rank` ends; what it sent before still arrives, and then everybody sees the end.
        fn end(&mut self, rank: u32) {
            self.views[rank as usize] = None;
            self.wires.retain(|(_, to), _| *to != rank);
            while let Some(((_, to), word)) = self
                .wires
                .iter_mut()
                .filter(|((from, _), _)| *from == rank)
                .find_map(|(edge, wire)| wire.pop_front().map(|word| (*edge, word)))
            {
                self.view(to).hear(rank, word);
                self.apply(to);
            }
            self.wires.retain(|(from, _), _| *from != rank);
        }

        fn notice(&mut self, rank: u32) {
            for other in 0..self.views.len() as u32 {
                if self.alive(other) {
                    self.view(other).lose(rank, "ended".into());
                    self.apply(other);
                }
            }
        }

        fn run(&mut self) {
            while self.step() {}
        }
    }

    /// A choice that depends on a seed alone.
    fn chooser(seed: u64) -> impl FnMut(usize) -> usize {
        let mut state = seed | 1;
        move |n| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % n as u64) as usize
        }
    }

    proptest! {
        #[test]
        fn a_settled_leaver_is_never_taken_for_dead(n in 1u32..40, seed in any::<u64>(), delay in 0usize..200) {
            let mut world = World::new(n, chooser(seed));
            for _ in 0..delay {
                world.step();
            }
            // All leave at their own times; a process ends some time after it was settled, whatever came up since.
            let mut to_leave: Vec<u32> = (0..n).collect();
            let mut order = chooser(!seed);
            let mut may_end = BTreeSet::new();
            loop {
                if !to_leave.is_empty() && order(3) == 0 {
                    let rank = to_leave.swap_remove(order(to_leave.len()));
                    world.view(rank).leave(None);
                    world.apply(rank);
                }
                let moved = world.step();
                may_end.extend((0..n).filter(|r| !to_leave.contains(r) && world.alive(*r)
                    && world.views[*r as usize].as_ref().unwrap().settled()));
                if !may_end.is_empty() && (!moved || order(3) == 0) {
                    let rank = *may_end.iter().nth(order(may_end.len())).unwrap();
                    may_end.remove(&rank);
                    world.end(rank);
                    world.notice(rank);
                } else if !moved && to_leave.is_empty() {
                    break;
                }
            }
            prop_assert!((0..n).all(|r| !world.alive(r)), "somebody never settled");
            prop_assert!(world.minded.is_empty(), "{:?}", world.minded);
        }

        #[test]
        fn one_verdict_for_all(
            n in 1u32..40,
            seed in any::<u64>(),
            raisers in prop::collection::vec(any::<u32>(), 1..5),
            dead in prop::collection::btree_set(0u32..40, 0..6),
        ) {
            let mut world = World::new(n, chooser(seed));
            let dead: Vec<u32> = dead.into_iter().filter(|&d| d < n).take(n as usize - 1).collect();
            for &d in &dead {
                for _ in 0..5 {
                    world.step();
                }
                world.end(d);
                world.notice(d);
            }
            let alive: Vec<u32> = (0..n).filter(|&r| world.alive(r)).collect();
            for r in raisers {
                let r = alive[r as usize % alive.len()];
                world.view(r).raise(cause(r));
                world.apply(r);
                world.step();
            }
            world.run();
            let verdict = world.verdicts[alive[0] as usize].clone();
            prop_assert!(verdict.is_some());
            for &r in &alive {
                prop_assert_eq!(&world.verdicts[r as usize], &verdict);
                prop_assert_eq!(world.died[r as usize].len(), dead.len());
            }
        }

        #[test]
        fn news_reach_all_even_if_one_rank_sees_them(n in 2u32..40, seed in any::<u64>(), who in any::<u32>()) {
            let mut world = World::new(n, chooser(seed));
            let dead = who % n;
            world.run();
            world.end(dead);
            let witness = (dead + 1) % n;
            world.view(witness).lose(dead, "its connection ended".into());
            world.apply(witness);
            // Its neighbours see the ends of their connections, the others only hear of it.
            for r in 0..n {
                if world.alive(r) && world.view(r).connected.contains(&dead) {
                    world.view(r).lose(dead, "its connection ended".into());
                    world.apply(r);
                }
            }
            world.run();
            for r in (0..n).filter(|&r| r != dead) {
                prop_assert!(world.died[r as usize].contains(&dead), "rank {r}");
            }
        }
    }

    #[test]
    fn a_lone_rank_settles_and_decides_alone() {
        let mut view = View::new(0, 1);
        view.raise(cause(0));
        view.leave(None);
        assert_eq!(view.effects(), [Effect::Verdict(cause(0)), Effect::Left(0, None)]);
        assert!(view.settled() && view.finished());
    }

    #[test]
    fn a_verdict_never_changes() {
        let mut view = View::new(1, 2);
        view.connect(0);
        view.hear(0, Word::Verdict(cause(0)));
        view.hear(0, Word::Verdict(cause(1)));
        view.raise(cause(1));
        assert_eq!(view.effects(), [Effect::Verdict(cause(0))]);
    }

    #[test]
    fn nonsense_is_ignored() {
        let mut view = View::new(1, 2);
        view.connect(0);
        for word in [
            Word::Left { rank: 9, made: None },
            Word::Died {
                rank: 9,
                how: String::new(),
            },
            Word::Died {
                rank: 1,
                how: String::new(),
            },
            Word::Heard { rank: 9 },
        ] {
            view.hear(0, word);
        }
        assert_eq!(view.effects(), []);
    }
}
