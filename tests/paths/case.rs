//! A call with data of its own, and what it must leave in each rank's memory: worked out from the ranks' contributions alone.

use crate::{
    common::memory::Memory,
    typed::{Typed, element},
};
use ccl::{Collective, Communicator, DType, Op, PreMulSum, Reduction};
use std::ops::Range;

/// One call, the same on all ranks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Case {
    pub(crate) collective: Collective,
    pub(crate) dtype: DType,
    /// `None`: the sum of what each rank multiplies by a scalar of its own.
    pub(crate) op: Option<Op>,
    /// Elements of the vector, or of the longest block.
    pub(crate) count: usize,
    pub(crate) in_place: bool,
    /// Whether the buffers are of the kind that peers can read.
    pub(crate) is_shared: bool,
    /// How often it is made after the first time, in which it goes on by itself.
    pub(crate) repeats: usize,
    pub(crate) seed: u64,
}

/// The case as one rank sees it.
struct Seen<'a> {
    case: &'a Case,
    comm: &'a Communicator,
    me: usize,
    n: usize,
    root: usize,
    numbers: Numbers,
}

/// The numbers that ranks contribute.
enum Numbers {
    Below(u32),
    /// 1 and 2.
    Factors,
    /// The last rank's make the sum a multiple of the ranks.
    Averaged(u32),
}

/// Blocks of a vector, one for each rank.
struct Blocks {
    counts: Vec<usize>,
    displs: Vec<usize>,
    len: usize,
}

/// What a rank gives to a call, and what it has afterwards.
struct Data<T> {
    send: Vec<T>,
    /// What the output holds before; in place what is sent, too.
    before: Vec<T>,
    after: Vec<T>,
    /// How the blocks of input and output lie, where they are given.
    blocks: [Blocks; 2],
}

/// Makes a call out of place on a communicator or in a scope.
macro_rules! call {
    ($on:expr, $seen:expr, $op:expr, $blocks:expr, $send:expr, $recv:expr) => {{
        let (root, [from, to]) = ($seen.root, $blocks);
        let (is_root, send, recv) = ($seen.is_root(), $send, $recv);
        match $seen.case.collective {
            Collective::AllReduce => $on.all_reduce(send, recv, $op),
            Collective::Broadcast { .. } => $on.broadcast(is_root.then_some(send), recv, root),
            Collective::Reduce { .. } => $on.reduce(send, is_root.then_some(recv), $op, root),
            Collective::AllGather => $on.all_gather(send, recv),
            Collective::ReduceScatter => $on.reduce_scatter(send, recv, $op),
            Collective::Gather { .. } => $on.gather(send, is_root.then_some(recv), root),
            Collective::Scatter { .. } => $on.scatter(is_root.then_some(send), recv, root),
            Collective::AlltoAll => $on.all_to_all(send, recv),
            Collective::AllGatherV => $on.all_gather_v(send, recv, &to.counts, &to.displs),
            Collective::ReduceScatterV => $on.reduce_scatter_v(send, &from.counts, &from.displs, recv, $op),
            Collective::GatherV { .. } => {
                let given = is_root.then_some((recv, &to.counts[..], &to.displs[..]));
                $on.gather_v(send, given, root)
            }
            Collective::ScatterV { .. } => {
                let given = is_root.then_some((send, &from.counts[..], &from.displs[..]));
                $on.scatter_v(given, recv, root)
            }
            Collective::AlltoAllV => {
                $on.all_to_all_v(send, &from.counts, &from.displs, recv, &to.counts, &to.displs)
            }
            other => panic!("{other:?} has no data"),
        }
    }};
}

impl Case {
    /// Makes the call, and looks at all memory after each time.
    pub(crate) fn run(&self, comm: &Communicator) {
        let seen = Seen {
            case: self,
            comm,
            me: comm.rank(),
            n: comm.ranks(),
            root: self.collective.root().unwrap_or(0) as usize,
            numbers: self.numbers(),
        };
        if self.collective == Collective::Barrier {
            comm.begin().barrier().unwrap().wait().unwrap();
            return (0..self.repeats).for_each(|_| comm.barrier().unwrap());
        }
        element!(self.dtype, T => match self.op {
            Some(op) => seen.make::<T, _>(op),
            None => seen.make::<T, _>(PreMulSum(T::of(seen.scalar(seen.me)))),
        });
    }

    /// Such that all that is reduced on the way is whole, and so small that each type holds it as it is.
    fn numbers(&self) -> Numbers {
        let limit = match self.dtype {
            _ if !self.collective.reduces() => return Numbers::Below(256),
            DType::Float8e4m3 | DType::Float8e5m2 => 2,
            _ => 25,
        };
        match self.op {
            Some(Op::Prod) => Numbers::Factors,
            Some(Op::Avg) => Numbers::Averaged(limit),
            _ => Numbers::Below(limit),
        }
    }
}

impl Seen<'_> {
    fn make<T: Typed, R: Reduction<T>>(&self, op: R) {
        let Case { is_shared, .. } = *self.case;
        let Data {
            send: given,
            before,
            after,
            blocks,
        } = self.data::<T>();
        let send = Memory::of(is_shared, &given);
        let mut recv = Memory::of(is_shared, &before);
        for turn in 0..=self.case.repeats {
            recv.copy_from_slice(&before);
            let (from, to) = (&send[..], &mut recv[..]);
            let called = match (self.case.in_place, turn) {
                (true, _) => self.in_place(op, &blocks[self.held()], to),
                (false, 0) => self.comm.scope(|scope| call!(scope, self, op, &blocks, from, to)),
                (false, _) => call!(self.comm, self, op, &blocks, from, to),
            };
            called.unwrap_or_else(|error| panic!("{}: {error}", self.what(turn)));
            let differs = recv.iter().zip(&after).position(|(is, wanted)| is != wanted);
            assert!(differs.is_none(), "{}: element {differs:?}", self.what(turn));
            assert!(send[..] == given, "{}: the input was changed", self.what(turn));
            if is_shared {
                // By the call after the next one all ranks have mapped what was handed over.
                self.comm.barrier().unwrap();
            }
        }
    }

    fn what(&self, turn: usize) -> String {
        format!("{:?}, turn {turn}, rank {} of {}", self.case, self.me, self.n)
    }

    fn in_place<T: Typed>(&self, op: impl Reduction<T>, blocks: &Blocks, data: &mut [T]) -> ccl::Result<()> {
        let (comm, root) = (self.comm, self.root);
        let (counts, displs) = (&blocks.counts[..], &blocks.displs[..]);
        let given = self.is_root().then_some((counts, displs));
        match self.case.collective {
            Collective::AllReduce => comm.all_reduce_in_place(data, op),
            Collective::Broadcast { .. } => comm.broadcast_in_place(data, root),
            Collective::Reduce { .. } => comm.reduce_in_place(data, op, root),
            Collective::AllGather => comm.all_gather_in_place(data),
            Collective::ReduceScatter => comm.reduce_scatter_in_place(data, op),
            Collective::Gather { .. } => comm.gather_in_place(data, root),
            Collective::Scatter { .. } => comm.scatter_in_place(data, root),
            Collective::AlltoAll => comm.all_to_all_in_place(data),
            Collective::AllGatherV => comm.all_gather_v_in_place(data, counts, displs),
            Collective::ReduceScatterV => comm.reduce_scatter_v_in_place(data, counts, displs, op),
            Collective::GatherV { .. } => comm.gather_v_in_place(data, given, root),
            Collective::ScatterV { .. } => comm.scatter_v_in_place(data, given, root),
            other => panic!("{other:?} has no form in place"),
        }
    }

    fn is_root(&self) -> bool {
        self.me == self.root
    }

    /// Which of input and output has all blocks, where one of them has.
    fn held(&self) -> usize {
        match self.case.collective.plain() {
            Collective::ReduceScatter | Collective::Scatter { .. } => 0,
            _ => 1,
        }
    }

    fn data<T: Typed>(&self) -> Data<T> {
        let blocks = [0, 1].map(|side| self.blocks(side));
        let own = self.len(self.me, self.me);
        let one = |from: usize, to: usize| move |i: usize| T::of(self.value(from, to, i));
        let whole = |from: usize| (0..self.case.count).map(one(from, 0)).collect::<Vec<T>>();
        let block = |from: usize, to: usize| (0..own).map(one(from, to)).collect::<Vec<T>>();
        let sums = |to: usize, len: usize| (0..len).map(|i| T::of(self.sum(to, i))).collect::<Vec<T>>();
        let untouched = |len: usize| vec![T::of(UNTOUCHED); len];
        let filled = |side: usize, content: &dyn Fn(usize, usize) -> T| {
            let mut data = untouched(blocks[side].len);
            for rank in 0..self.n {
                for (i, at) in blocks[side].place(rank).enumerate() {
                    data[at] = content(rank, i);
                }
            }
            data
        };
        let sent = || filled(0, &|to, i| one(self.me, to)(i));
        let gathered = || filled(1, &|from, i| one(from, 0)(i));
        let in_place = self.case.in_place;
        let (send, before, after) = match self.case.collective.plain() {
            Collective::AllReduce => (
                whole(self.me),
                untouched(self.case.count),
                sums(0, self.case.count),
            ),
            Collective::Reduce { .. } if self.is_root() => (
                whole(self.me),
                untouched(self.case.count),
                sums(0, self.case.count),
            ),
            Collective::Reduce { .. } if in_place => (whole(self.me), Vec::new(), whole(self.me)),
            Collective::Reduce { .. } => (whole(self.me), Vec::new(), Vec::new()),
            Collective::Broadcast { .. } => {
                let before = untouched(self.case.count);
                let send = if self.is_root() {
                    whole(self.root)
                } else {
                    before.clone()
                };
                (send, before, whole(self.root))
            }
            Collective::AllGather => (block(self.me, 0), untouched(blocks[1].len), gathered()),
            Collective::Gather { .. } if self.is_root() => {
                (block(self.me, 0), untouched(blocks[1].len), gathered())
            }
            Collective::Gather { .. } if in_place => (block(self.me, 0), Vec::new(), block(self.me, 0)),
            Collective::Gather { .. } => (block(self.me, 0), Vec::new(), Vec::new()),
            Collective::ReduceScatter => (sent(), untouched(own), sums(self.me, own)),
            Collective::Scatter { .. } if self.is_root() => {
                (sent(), untouched(own), block(self.root, self.me))
            }
            Collective::Scatter { .. } => (Vec::new(), untouched(own), block(self.root, self.me)),
            _ => (
                sent(),
                untouched(blocks[1].len),
                filled(1, &|from, i| one(from, self.me)(i)),
            ),
        };
        if !in_place {
            return Data {
                send,
                before,
                after,
                blocks,
            };
        }
        // One buffer, with the own block at its place among the others.
        let place = blocks[self.held()].place(self.me);
        let among = |mut all: Vec<T>, own: &[T]| {
            all[place.clone()].copy_from_slice(own);
            all
        };
        let (before, after) = match self.case.collective.plain() {
            Collective::AllGather => (among(before, &send), after),
            Collective::Gather { .. } if self.is_root() => (among(before, &send), after),
            Collective::ReduceScatter => (send.clone(), among(send, &after)),
            Collective::Scatter { .. } if self.is_root() => (send.clone(), send),
            Collective::Scatter { .. } => (before, after),
            _ => (send, after),
        };
        Data {
            send: Vec::new(),
            before,
            after,
            blocks,
        }
    }

    /// The blocks of the input (0) or the output (1): in an order of each rank's own, with gaps, where they may lie so.
    fn blocks(&self, side: usize) -> Blocks {
        let lens = (0..self.n).map(|other| match side {
            0 => self.len(self.me, other),
            _ => self.len(other, self.me),
        });
        let counts: Vec<usize> = lens.collect();
        let in_place = if self.case.in_place { 1 } else { side };
        let mut random = fastrand::Rng::with_seed(self.case.seed ^ (self.me << 1 | in_place) as u64);
        let mut order: Vec<usize> = (0..self.n).collect();
        let is_given = self.case.collective.has_given_blocks();
        if is_given {
            random.shuffle(&mut order);
        }
        let (mut displs, mut len) = (vec![0; self.n], 0);
        for rank in order {
            len += if is_given { random.usize(..4) } else { 0 };
            displs[rank] = len;
            len += counts[rank];
        }
        Blocks { counts, displs, len }
    }

    /// Elements that go from a rank to another; where all ranks know all lengths, that of the block that one of them has.
    fn len(&self, from: usize, to: usize) -> usize {
        let count = self.case.count;
        let pair = match self.case.collective {
            Collective::AlltoAllV => from << 8 | to,
            Collective::AllGatherV | Collective::GatherV { .. } => from,
            Collective::ReduceScatterV | Collective::ScatterV { .. } => to,
            _ => return count,
        };
        let mut random = fastrand::Rng::with_seed(self.case.seed ^ (pair as u64) << 20);
        match random.u8(..4) {
            0 => 0,
            1 => random.usize(..=count),
            _ => count,
        }
    }

    /// What `from` has for `to` as element `i`. Whole vectors, and blocks that all get, are for rank 0.
    fn value(&self, from: usize, to: usize, i: usize) -> u8 {
        match self.numbers {
            Numbers::Below(limit) => self.draw(from, to, i, limit) as u8,
            Numbers::Factors => 1 + self.draw(from, to, i, 2) as u8,
            Numbers::Averaged(limit) if from + 1 < self.n => self.draw(from, to, i, limit) as u8,
            Numbers::Averaged(limit) => {
                let others: u32 = (0..from).map(|rank| self.draw(rank, to, i, limit)).sum();
                ((self.n as u32 - others % self.n as u32) % self.n as u32) as u8
            }
        }
    }

    /// A number below `limit` that looks like any other.
    fn draw(&self, from: usize, to: usize, i: usize, limit: u32) -> u32 {
        let key = self.case.seed ^ (from << 56 | to << 48 | i) as u64;
        let mixed = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (((mixed >> 32) * u64::from(limit)) >> 32) as u32
    }

    /// What this rank multiplies by in a [`PreMulSum`].
    fn scalar(&self, rank: usize) -> u8 {
        1 + rank as u8 % 2
    }

    /// Element `i` of `to`'s block of what the ranks' contributions are reduced to.
    fn sum(&self, to: usize, i: usize) -> u8 {
        let all = (0..self.n).map(|from| u32::from(self.value(from, to, i)));
        let reduced = match self.case.op {
            Some(Op::Sum) => all.sum(),
            Some(Op::Prod) => all.product(),
            Some(Op::Max) => all.fold(0, u32::max),
            Some(Op::Min) => all.fold(255, u32::min),
            Some(Op::Avg) => all.sum::<u32>() / self.n as u32,
            Some(Op::BitAnd) => all.fold(255, |a, b| a & b),
            Some(Op::BitOr) => all.fold(0, |a, b| a | b),
            Some(Op::BitXor) => all.fold(0, |a, b| a ^ b),
            _ => all
                .zip(0..)
                .map(|(value, rank)| value * u32::from(self.scalar(rank)))
                .sum(),
        };
        reduced as u8
    }
}

impl Blocks {
    fn place(&self, rank: usize) -> Range<usize> {
        self.displs[rank]..self.displs[rank] + self.counts[rank]
    }
}

/// What is where nobody may write.
const UNTOUCHED: u8 = 113;
