//! What a rank calls: the collective and everything that the ranks must agree on.

use super::{DType, Error, Op, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A collective operation, with what distinguishes its schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Collective {
    /// Every rank ends with the reduction of all ranks' vectors.
    AllReduce,
    /// Every rank ends with `root`'s vector.
    Broadcast {
        /// The rank whose data everyone gets.
        root: u32,
    },
    /// No rank is over before all have begun.
    Barrier,
    /// `root` ends with the reduction of all ranks' vectors.
    Reduce {
        /// The rank that gets the result.
        root: u32,
    },
    /// Every rank ends with all ranks' vectors, one after the other.
    AllGather,
    /// Every rank ends with its block of the reduction of all ranks' vectors.
    ReduceScatter,
    /// `root` ends with all ranks' vectors, one after the other.
    Gather {
        /// The rank that gets them.
        root: u32,
    },
    /// Every rank ends with its block of `root`'s vector.
    Scatter {
        /// The rank whose data the others get.
        root: u32,
    },
    /// Every rank ends with its block of each rank's vector, one after the other.
    AlltoAll,
    /// [`Collective::AllGather`] of blocks that are not equally long.
    AllGatherV,
    /// [`Collective::ReduceScatter`] of blocks that are not equally long.
    ReduceScatterV,
    /// [`Collective::Gather`] of blocks that are not equally long.
    GatherV {
        /// The rank that gets them.
        root: u32,
    },
    /// [`Collective::Scatter`] of blocks that are not equally long.
    ScatterV {
        /// The rank whose data the others get.
        root: u32,
    },
    /// [`Collective::AlltoAll`] of blocks that are not equally long.
    AlltoAllV,
}

impl Collective {
    /// The name that messages and `ccl-perf` use.
    pub fn name(self) -> &'static str {
        match self {
            Collective::AllReduce => "allreduce",
            Collective::Broadcast { .. } => "broadcast",
            Collective::Barrier => "barrier",
            Collective::Reduce { .. } => "reduce",
            Collective::AllGather => "allgather",
            Collective::ReduceScatter => "reducescatter",
            Collective::Gather { .. } => "gather",
            Collective::Scatter { .. } => "scatter",
            Collective::AlltoAll => "alltoall",
            Collective::AllGatherV => "allgatherv",
            Collective::ReduceScatterV => "reducescatterv",
            Collective::GatherV { .. } => "gatherv",
            Collective::ScatterV { .. } => "scatterv",
            Collective::AlltoAllV => "alltoallv",
        }
    }

    /// The collective that does the same with blocks that are equally long; itself if it is none of the V forms.
    pub fn plain(self) -> Collective {
        match self {
            Collective::AllGatherV => Collective::AllGather,
            Collective::ReduceScatterV => Collective::ReduceScatter,
            Collective::GatherV { root } => Collective::Gather { root },
            Collective::ScatterV { root } => Collective::Scatter { root },
            Collective::AlltoAllV => Collective::AlltoAll,
            plain => plain,
        }
    }

    /// Whether it is one of the V forms: the caller says how long each block is and where it lies.
    pub fn has_given_blocks(self) -> bool {
        self != self.plain()
    }

    /// Whether it is a V form in which a rank knows only the blocks that it has itself, so that two ranks can differ in
    /// what goes between them.
    pub(crate) fn counts_by_pair(self) -> bool {
        matches!(
            self,
            Collective::GatherV { .. } | Collective::ScatterV { .. } | Collective::AlltoAllV
        )
    }

    /// The root, where there is one.
    #[inline]
    pub fn root(self) -> Option<u32> {
        match self.plain() {
            Collective::Broadcast { root }
            | Collective::Reduce { root }
            | Collective::Gather { root }
            | Collective::Scatter { root } => Some(root),
            _ => None,
        }
    }

    /// The same with another root, if it has one.
    pub(crate) fn at_root(self, root: impl FnOnce(u32) -> u32) -> Collective {
        let moved = self
            .root()
            .and_then(|old| Collective::of_kind(self.kind(), root(old)));
        moved.unwrap_or(self)
    }

    /// Whether there is a vector of the caller's; a barrier passes a byte of the library's own around.
    pub fn has_vector(self) -> bool {
        !matches!(self, Collective::Barrier)
    }

    /// Whether the caller's values are combined on the way, so that the reduction operation matters.
    pub fn reduces(self) -> bool {
        matches!(
            self.plain(),
            Collective::AllReduce | Collective::Reduce { .. } | Collective::ReduceScatter
        )
    }

    /// Whether a vector has a block for each rank, `count` elements each but for the V forms; else it is `count` elements
    /// in all.
    pub fn has_blocks(self) -> bool {
        matches!(
            self.plain(),
            Collective::AllGather
                | Collective::ReduceScatter
                | Collective::Gather { .. }
                | Collective::Scatter { .. }
                | Collective::AlltoAll
        )
    }

    /// The collective with this number in a signature, and with this root if it has one.
    fn of_kind(kind: u32, root: u32) -> Option<Collective> {
        Some(match kind {
            0 => Collective::AllReduce,
            1 => Collective::Broadcast { root },
            2 => Collective::Barrier,
            3 => Collective::Reduce { root },
            4 => Collective::AllGather,
            5 => Collective::ReduceScatter,
            6 => Collective::Gather { root },
            7 => Collective::Scatter { root },
            8 => Collective::AlltoAll,
            9 => Collective::AllGatherV,
            10 => Collective::ReduceScatterV,
            11 => Collective::GatherV { root },
            12 => Collective::ScatterV { root },
            13 => Collective::AlltoAllV,
            _ => return None,
        })
    }

    #[inline]
    fn kind(self) -> u32 {
        match self {
            Collective::AllReduce => 0,
            Collective::Broadcast { .. } => 1,
            Collective::Barrier => 2,
            Collective::Reduce { .. } => 3,
            Collective::AllGather => 4,
            Collective::ReduceScatter => 5,
            Collective::Gather { .. } => 6,
            Collective::Scatter { .. } => 7,
            Collective::AlltoAll => 8,
            Collective::AllGatherV => 9,
            Collective::ReduceScatterV => 10,
            Collective::GatherV { .. } => 11,
            Collective::ScatterV { .. } => 12,
            Collective::AlltoAllV => 13,
        }
    }
}

/// One call as every rank must have made it. Two ranks whose calls with the same number differ get an error that
/// prints both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Call {
    /// The call's number on its communicator, from 0.
    pub seq: u32,
    /// What is called.
    pub collective: Collective,
    /// Elements of the vector, or of a block of it (see [`Collective::has_blocks`]); 1 where there is none. Of an
    /// all-gather or reduce-scatter of given blocks the sum of all counts, with a hash of them in the upper 24 bits. Of the
    /// other V forms what the rank sends; in a message, and where two ranks' calls differ, what goes between the two.
    pub count: u64,
    /// Type of the elements; [`DType::Uint8`] where there is no vector.
    pub dtype: DType,
    /// The reduction; [`Op::Sum`] where the collective does not reduce. By another one an all-gather is told to be that of a
    /// split ([`Call::is_split`]) or of a collective on memory of devices ([`Call::is_on_device`]).
    pub op: Op,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_split() {
            return write!(f, "call #{} split()", self.seq);
        }
        if self.is_on_device() {
            return write!(f, "call #{} on memory of devices", self.seq);
        }
        write!(f, "call #{} {}(", self.seq, self.collective.name())?;
        if self.collective.has_given_blocks() && !self.collective.counts_by_pair() {
            let (sum, hash) = (self.count & SUM, self.count >> SUM.count_ones());
            write!(f, "{sum} x {} in all, counts #{hash:06x}", self.dtype)?;
        } else if self.collective.has_vector() {
            write!(f, "{} x {}", self.count, self.dtype)?;
        }
        if self.collective.reduces() {
            write!(f, ", {}", self.op)?;
        }
        if let Some(root) = self.collective.root() {
            write!(f, ", root {root}")?;
        }
        f.write_str(")")
    }
}

/// The bits of a call's count that hold the sum of the counts that all ranks pass.
const SUM: u64 = (1 << 40) - 1;

/// A call's count where all ranks pass the same counts: their sum, and a hash by which others with this sum differ.
pub(crate) fn count_of_all(counts: impl Iterator<Item = usize>) -> u64 {
    // FNV-1a, a count at a time; its upper bits depend on all of what came before.
    let (mut sum, mut hash) = (0u64, 0xcbf2_9ce4_8422_2325u64);
    for count in counts {
        sum = sum.wrapping_add(count as u64);
        hash = (hash ^ count as u64).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^= hash >> 32;
    }
    sum & SUM | hash & !SUM
}

impl Call {
    /// The operation of the all-gather by which a split hands round colours and keys. No program's all-gather has one, so that
    /// the two differ.
    pub(crate) const SPLIT: Op = Op::BitXor;

    /// Whether this is the all-gather of a split or a duplication, and not one of the program's.
    pub fn is_split(&self) -> bool {
        self.collective == Collective::AllGather && self.op == Call::SPLIT
    }

    /// The operation of the all-gather by which the ranks tell each other what they call on memory of devices.
    pub(crate) const ON_DEVICE: Op = Op::BitAnd;

    /// Whether this is the all-gather of a collective on memory of devices that goes from device to device, which is told by its own name
    /// where it differs from another rank's.
    pub fn is_on_device(&self) -> bool {
        self.collective == Collective::AllGather && self.op == Call::ON_DEVICE
    }

    /// Whether this may be the same call as `other`, another rank's with the same number.
    pub(crate) fn agrees_with(&self, other: &Call) -> bool {
        let count = match self.collective.counts_by_pair() {
            true => self.count,
            false => other.count,
        };
        *self == Call { count, ..*other }
    }

    /// Collective, type, operation and root in one word; those of no other call with a root below [`MAX_RANKS`].
    #[inline]
    pub(crate) fn what(collective: Collective, dtype: DType, op: Op) -> u32 {
        let root = collective.root().unwrap_or(0);
        collective.kind() | (dtype as u32) << 4 | (op as u32) << 8 | root << 12
    }

    /// [`Call::what`] of numbers that may be anything, of which the root takes that of `collective`'s place. Those that are no call's
    /// give no call's word, or `None`.
    #[inline(always)] // in the path of each short call
    pub(crate) fn what_of_numbers(collective: Collective, root: i32, dtype: i32, op: i32) -> Option<u32> {
        let (root, dtype, op) = (root.cast_unsigned(), dtype.cast_unsigned(), op.cast_unsigned());
        let fits = (root as usize) < MAX_RANKS && dtype < 16 && (op as usize) < Op::ALL.len();
        fits.then(|| collective.kind() | dtype << 4 | op << 8 | root << 12)
    }

    /// The call in sixteen bytes: number; collective, type, operation and root; count. Calls that differ have signatures that
    /// differ.
    pub(crate) fn signature(&self) -> [u32; 4] {
        let what = Call::what(self.collective, self.dtype, self.op);
        [self.seq, what, self.count as u32, (self.count >> 32) as u32]
    }

    /// The call with this signature, if it is one.
    pub(crate) fn from_signature([seq, what, low, high]: [u32; 4]) -> Option<Call> {
        let root = what >> 12;
        let collective = Collective::of_kind(what & 0xf, root)?;
        let dtype = DType::of_number((what >> 4 & 0xf) as i32)?;
        let op = match what >> 8 & 0xf {
            8 => Op::PreMulSum,
            op => Op::of_number(op as i32)?,
        };
        Some(Call {
            seq,
            collective,
            count: u64::from(low) | u64::from(high) << 32,
            dtype,
            op,
        })
    }
}

impl Call {
    /// What the call adds to the trail of those before it: a hash of all that every rank must say alike, but for the number,
    /// which is told by how many there are.
    pub(crate) fn mark(&self) -> u32 {
        let count = match self.collective.counts_by_pair() {
            true => 0,
            false => self.count,
        };
        let [_, what, ..] = self.signature();
        let hash = (u64::from(what) ^ count.rotate_left(29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let hash = (hash ^ hash >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
        (hash >> (u64::BITS - TRAIL_BITS)) as u32
    }

    /// The trail after a call with that mark. Two trails that differ differ for ever if only the same calls follow.
    #[inline]
    pub(crate) fn trail_after(trail: u32, mark: u32) -> u32 {
        // The factor is odd, so that nothing is lost.
        trail.wrapping_mul(0x0053_3d6b).wrapping_add(mark) & TRAIL
    }

    /// The sixteen bytes that each message of the call carries: its signature, of whose number only the lower half, with the
    /// trail of the calls before it.
    pub(crate) fn header(&self, trail: u32) -> [u32; 4] {
        let [seq, what, low, high] = self.signature();
        let first = Call::first_word(u64::from(seq) | u64::from(what) << 32, trail);
        [first as u32, (first >> 32) as u32, low, high]
    }

    /// The first half of a header, by the first half of the signature.
    #[inline]
    pub(crate) fn first_word(signature: u64, trail: u32) -> u64 {
        let what = signature >> 32 << (SEQ_BITS + TRAIL_BITS);
        what | u64::from(trail) << SEQ_BITS | signature & SEQ
    }

    /// The call whose messages carry that header, if it is one: with the number that is nearest to `near`.
    pub(crate) fn from_header(header: [u32; 4], near: u32) -> Option<Call> {
        let [first, second, low, high] = header;
        let first = u64::from(first) | u64::from(second) << 32;
        let ahead = (first as u16).wrapping_sub(near as u16).cast_signed();
        let seq = near.wrapping_add_signed(ahead.into());
        Call::from_signature([seq, (first >> (SEQ_BITS + TRAIL_BITS)) as u32, low, high])
    }

    /// Whether messages with these headers come after the same calls, as many and alike.
    pub(crate) fn have_one_past(a: [u32; 4], b: [u32; 4]) -> bool {
        let past = |[first, second, ..]: [u32; 4]| (first, second & (TRAIL >> (u32::BITS - SEQ_BITS)));
        past(a) == past(b)
    }
}

/// Bits of a header's first half: of the call's number, and of the trail. The rest are as many as a signature's second word
/// uses.
const SEQ_BITS: u32 = 16;
pub(crate) const TRAIL_BITS: u32 = 23;
const SEQ: u64 = (1 << SEQ_BITS) - 1;
pub(crate) const TRAIL: u32 = (1 << TRAIL_BITS) - 1;

/// A message between two ranks, as one of them called for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Transfer {
    /// A send.
    Send {
        /// The receiver.
        to: u32,
        /// What tells messages of the same pair of ranks apart.
        tag: i32,
        /// Elements.
        count: u64,
        /// Their type.
        dtype: DType,
    },
    /// A receive.
    Recv {
        /// The sender; `None`: any.
        from: Option<u32>,
        /// The tag; `None`: any.
        tag: Option<i32>,
        /// Elements that there is room for.
        count: u64,
        /// Their type.
        dtype: DType,
    },
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Transfer::Send {
                to,
                tag,
                count,
                dtype,
            } => write!(f, "send({count} x {dtype} to rank {to}, tag {tag})"),
            Transfer::Recv {
                from,
                tag,
                count,
                dtype,
            } => {
                write!(f, "recv({count} x {dtype} from ")?;
                match from {
                    Some(rank) => write!(f, "rank {rank}, ")?,
                    None => f.write_str("any rank, ")?,
                }
                match tag {
                    Some(tag) => write!(f, "tag {tag})"),
                    None => f.write_str("any tag)"),
                }
            }
        }
    }
}

/// Anything that a rank calls and may have to wait in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Operation {
    /// Something that all ranks call.
    Collective(Call),
    /// A message between two ranks.
    Transfer(Transfer),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Collective(call) => call.fmt(f),
            Operation::Transfer(transfer) => transfer.fmt(f),
        }
    }
}

impl From<Call> for Operation {
    fn from(call: Call) -> Self {
        Operation::Collective(call)
    }
}

impl From<Transfer> for Operation {
    fn from(transfer: Transfer) -> Self {
        Operation::Transfer(transfer)
    }
}

/// The most ranks of a communicator: the table of their addresses must fit a frame. A root then fits the twenty bits that a
/// call's signature has for it.
pub(crate) const MAX_RANKS: usize = 8192;

/// Checks that there can be a communicator of `ranks` ranks.
///
/// # Errors
/// [`Error::Invalid`] when there cannot.
pub(crate) fn check_ranks(ranks: usize) -> Result<()> {
    if (1..=MAX_RANKS).contains(&ranks) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a communicator of {ranks} ranks: there must be 1 to {MAX_RANKS}"
    )))
}

/// Checks that there can be a communicator of `ranks` ranks, of which `rank` is one.
///
/// # Errors
/// [`Error::Invalid`] when there cannot.
pub(crate) fn check_rank(rank: usize, ranks: usize) -> Result<()> {
    check_ranks(ranks)?;
    if rank < ranks {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "rank {rank} of {ranks}: ranks are numbered 0 to {}",
        ranks - 1
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_signature_tells_the_whole_call(
            seq: u32, count: u64, dtype in 0i32..14, op in 0..9usize, kind in 0u32..14, root in 0..MAX_RANKS as u32,
            trail in 0..TRAIL, ahead in -32767..=32767i16,
        ) {
            let collective = Collective::of_kind(kind, root).unwrap();
            let dtype = DType::from_number(dtype).unwrap();
            let op = Op::ALL.get(op).copied().unwrap_or(Op::PreMulSum);
            let call = Call { seq, collective, count, dtype, op };
            prop_assert_eq!(Call::from_signature(call.signature()), Some(call));
            let near = seq.wrapping_add_signed(ahead.into());
            prop_assert_eq!(Call::from_header(call.header(trail), near), Some(call));
            let (other, later) = (Call { count: !count, ..call }, Call { seq: seq.wrapping_add(1), ..call });
            prop_assert!(Call::have_one_past(call.header(trail), other.header(trail)));
            prop_assert!(!Call::have_one_past(call.header(trail), later.header(trail)));
            for bit in 0..TRAIL_BITS {
                prop_assert!(!Call::have_one_past(call.header(trail), call.header(trail ^ 1 << bit)));
            }
        }

        #[test]
        fn trails_stay_apart(one: [u32; 2], between in proptest::collection::vec(0..TRAIL, 0..100)) {
            let [one, other] = one.map(|trail| trail & TRAIL);
            let after = |trail| between.iter().fold(trail, |trail, &mark| Call::trail_after(trail, mark));
            prop_assert_eq!(after(one) == after(other), one == other);
        }

        #[test]
        fn counts_that_differ_have_another_hash(
            counts in proptest::collection::vec(0usize..9, 2..20), one: usize, other: usize,
        ) {
            let (one, other) = (one % counts.len(), other % counts.len());
            let mut swapped = counts.clone();
            swapped.swap(one, other);
            let [count, after] = [&counts, &swapped].map(|counts| count_of_all(counts.iter().copied()));
            prop_assert_eq!(count & SUM, counts.iter().sum::<usize>() as u64);
            prop_assert_eq!(count == after, counts == swapped);
        }
    }

    #[test]
    fn calls_that_differ_leave_other_marks() {
        let call = |root, count, dtype| Call {
            seq: 0,
            collective: Collective::Broadcast { root },
            count,
            dtype,
            op: Op::Sum,
        };
        let of_root = |root| (0..1000).map(move |count| call(root, count, DType::Int32));
        let mut marks: Vec<u32> = (0..10).flat_map(of_root).map(|call| call.mark()).collect();
        let all = marks.len();
        marks.sort_unstable();
        marks.dedup();
        // Of so many some meet by chance.
        assert!(all - marks.len() < 20, "{}", all - marks.len());
        assert_ne!(call(0, 1, DType::Int8).mark(), call(0, 1, DType::Uint8).mark());
        let mut by_pair = call(0, 1, DType::Int8);
        by_pair.collective = Collective::AlltoAllV;
        let mark = by_pair.mark();
        (by_pair.count, by_pair.seq) = (7, 9);
        assert_eq!(by_pair.mark(), mark);
    }

    #[test]
    fn a_split_and_what_goes_beside_a_device_are_no_all_gathers() {
        let gather = Call {
            seq: 3,
            collective: Collective::AllGather,
            count: 2,
            dtype: DType::Int64,
            op: Op::Sum,
        };
        let split = Call {
            op: Call::SPLIT,
            ..gather
        };
        assert_ne!(gather.signature(), split.signature());
        let on_device = Call {
            op: Call::ON_DEVICE,
            ..gather
        };
        assert_ne!(gather.signature(), on_device.signature());
        assert_eq!(
            [gather, split, on_device].map(|call| call.to_string()),
            [
                "call #3 allgather(2 x int64)",
                "call #3 split()",
                "call #3 on memory of devices"
            ]
        );
    }
}
