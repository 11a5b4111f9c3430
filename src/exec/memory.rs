//! A call's memory: where the data of each step lies, and what is done to it.

use super::track::Track;
use crate::{
    mem::{Region, settle_streams},
    plan::{
        layout::{Grains, Tiling},
        schedule::{Buffer, How, LoopVars, Schedule, Slice, Source, Step},
        verify::{Proof, SendSite},
    },
    reduce::{Manner, reduce_as},
    sys::helpers::Helpers,
    transport::Header,
    types::{DType, Op},
};
use smallvec::SmallVec;

/// One call, ready to be run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work<'m> {
    pub(crate) schedule: &'m Schedule,
    pub(crate) grains: Grains<'m>,
    pub(crate) tiling: Tiling,
    /// Tiles in flight.
    pub(crate) copies: usize,
    /// Channels of the rank that has the most of them.
    pub(crate) channels: usize,
    /// The lane of the first track; the others have the next ones.
    pub(crate) first_lane: usize,
    pub(crate) dtype: DType,
    pub(crate) op: Op,
    /// Whether floats are combined by the tree of [`Manner::tree`].
    pub(crate) tree: bool,
    /// What this rank's input is multiplied by when it is read, if it is.
    pub(crate) scalar: Option<u64>,
    /// What each message of the call carries, first the call's number. A message with another header is a mismatch. See
    /// also [`Work::header_of`].
    pub(crate) header: Header,
    pub(crate) input: Region<'m>,
    pub(crate) output: Region<'m>,
    /// At least [`Work::scratch_bytes`].
    pub(crate) scratch: Region<'m>,
    /// Whether the output goes past the caches: it is long, and not read again.
    pub(crate) streams: bool,
    /// Whether the same goes for what is written for other ranks to read, however near they are.
    pub(crate) past: bool,
    /// Which sends may be left where they lie until the peer takes them; `None`: none, all are copied.
    pub(crate) lend: Option<Lend<'m>>,
    /// Who takes parts of what is copied and reduced, if that pays.
    pub(crate) helpers: Option<&'m Helpers>,
}

/// The verifier's word on the sends of this rank's schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lend<'m> {
    pub(crate) proof: &'m Proof,
    pub(crate) rank: usize,
    pub(crate) in_place: bool,
    /// Bytes of the shortest message that is left where it lies if the peer can read it there.
    pub(crate) read: usize,
    /// The same if the peer can only take it by a system call.
    pub(crate) taken: usize,
    /// Bytes of the shortest message that, sent by this rank's hand, is not even copied by its system.
    pub(crate) paged: usize,
}

impl Lend<'_> {
    /// Whether the proof allows it of a message in `buffer`.
    ///
    /// Other ranks may be in place where this one is not. What is proved of all ranks in place holds then, as fewer steps wait
    /// there than if all were. And out of place nothing is ever written over the input, so that no step waits for what it sends.
    pub(super) fn allows(&self, buffer: Buffer, site: &SendSite) -> bool {
        let as_in_place = self.in_place || buffer != Buffer::Input;
        self.proof.zero_copy(as_in_place, site)
    }
}

/// `header` with `count` in the place of the call's count.
#[inline]
pub(super) fn telling([first, second, ..]: Header, count: usize) -> Header {
    [first, second, count as u32, (count >> 32) as u32]
}

impl<'m> Work<'m> {
    /// Bytes of scratch that a schedule needs.
    pub(crate) fn scratch_bytes(schedule: &Schedule, tiling: &Tiling, copies: usize, dtype: DType) -> usize {
        copies * schedule.scratch as usize * tiling.elements * dtype.size()
    }

    pub(super) fn ranks(&self) -> usize {
        self.schedule.ranks as usize
    }

    /// The position of the `k`-th grain of `slice` in its buffer, and the grain as long as which it is.
    #[inline]
    fn position(&self, slice: &Slice, k: usize, vars: &LoopVars) -> (usize, usize) {
        let schedule = self.schedule;
        let position = slice.position(k, vars, schedule.grains_of(slice.buffer));
        let total = schedule.total_grains();
        let grain = if position < total {
            position
        } else {
            position % total
        };
        (position, grain)
    }

    /// The track's tile's part of the `k`-th grain of `slice`.
    #[inline]
    pub(super) fn piece(&self, slice: &Slice, k: usize, track: &Track) -> Region<'m> {
        let Work {
            schedule,
            grains,
            tiling,
            dtype,
            ..
        } = self;
        let (position, grain) = self.position(slice, k, track.cursor.vars());
        let range = tiling.cut(grains.place(slice.buffer, grain), track.tile);
        let (at, len) = (range.start * dtype.size(), range.len() * dtype.size());
        match slice.buffer {
            Buffer::Input => self.input.part(at, len),
            Buffer::Output => self.output.part(at, len),
            Buffer::Scratch => {
                let slot = track.copy * schedule.scratch as usize + position;
                self.scratch.part(slot * tiling.elements * dtype.size(), len)
            }
        }
    }

    /// What the messages of `step` carry: of given blocks that only the two ends of a message know, the length of its grains
    /// in the place of the count.
    #[inline]
    pub(super) fn header_of(&self, step: &Step, vars: &LoopVars) -> Header {
        if !self.grains.are_told() {
            return self.header;
        }
        let Some(slice) = step.shape() else {
            return self.header;
        };
        let len = |k| {
            self.grains
                .place(slice.buffer, self.position(slice, k, vars).1)
                .len()
        };
        let count = (0..slice.grains()).map(len).sum::<usize>();
        telling(self.header, count)
    }

    /// Whether a message of no elements is sent in tile `tile`. It is in the first one of given blocks, so that a rank that
    /// counts on more, or on none, learns of the difference.
    #[inline]
    pub(super) fn sends_empty(&self, tile: usize) -> bool {
        matches!(self.grains, Grains::Given { .. }) && tile == 0
    }

    /// Bytes that `step` moves in the track's tile.
    pub(super) fn bytes_of(&self, step: &Step, track: &Track) -> usize {
        let of = |slice: &Slice| {
            (0..slice.grains())
                .map(|k| self.piece(slice, k, track).len())
                .sum()
        };
        step.shape().map_or(0, of)
    }

    /// Which of a step's sources is this rank's input, if that is multiplied. There is one at most: a result has each
    /// contribution once.
    pub(super) fn scaled(&self, step: &Step) -> Option<(usize, u64)> {
        let scalar = self.scalar?;
        let is_input =
            |source: &Source| matches!(source, Source::Slice(slice) if slice.buffer == Buffer::Input);
        Some((step.sources.iter().position(is_input)?, scalar))
    }

    /// The memory that holds the result of `step` once it has run, if there is any.
    pub(super) fn result_slice<'s>(&self, step: &'s Step) -> Option<&'s Slice> {
        step.stores.first().or_else(|| self.copied_slice(step))
    }

    /// The memory that `step` does no more than copy.
    pub(super) fn copied_slice<'s>(&self, step: &'s Step) -> Option<&'s Slice> {
        match (step.how, step.sources.as_slice()) {
            (How::Copy, [Source::Slice(slice)]) if self.scaled(step).is_none() => Some(slice),
            _ => None,
        }
    }

    /// Copies or reduces `sources` into each of `targets`. `scaled` says which of them is multiplied, and by what; `far`, whether
    /// those that are rooms of messages are for a processor that is far away.
    #[inline]
    pub(super) fn combine<'t>(
        &self,
        how: How,
        scaled: Option<(usize, u64)>,
        sources: &[Region<'_>],
        targets: impl Iterator<Item = Region<'t>>,
        far: bool,
    ) {
        match (self.helpers, sources) {
            (Some(helpers), [first, rest @ ..]) if first.len() >= SHARED => {
                let targets: SmallVec<[Region<'t>; 8]> = targets.collect();
                // What is in its place is not copied.
                if rest.is_empty() && targets.iter().all(|target| target.as_ptr() == first.as_ptr()) {
                    return self.combine_here(how, scaled, sources, targets.into_iter(), far);
                }
                self.combine_together(helpers, how, scaled, sources, &targets, far);
            }
            _ => self.combine_here(how, scaled, sources, targets, far),
        }
    }

    /// The same, each of the threads a part.
    fn combine_together(
        &self,
        helpers: &Helpers,
        how: How,
        scaled: Option<(usize, u64)>,
        sources: &[Region<'_>],
        targets: &[Region<'_>],
        far: bool,
    ) {
        let len = sources[0].len();
        let parts = helpers.threads().min(len / SHARE);
        // Lines are not cut, nor are elements. Which elements are combined together makes no difference to them.
        let cut = |part: usize| match part == parts {
            true => len,
            false => len / LINE * part / parts * LINE,
        };
        helpers.share(parts, &|part| {
            let (at, end) = (cut(part), cut(part + 1));
            let sources: SmallVec<[Region<'_>; 8]> =
                sources.iter().map(|from| from.part(at, end - at)).collect();
            self.combine_here(
                how,
                scaled,
                &sources,
                targets.iter().map(|to| to.part(at, end - at)),
                far,
            );
            self.settle(); // by whoever wrote
        });
    }

    /// The same by this thread alone.
    #[inline]
    fn combine_here<'t>(
        &self,
        how: How,
        scaled: Option<(usize, u64)>,
        sources: &[Region<'_>],
        targets: impl Iterator<Item = Region<'t>>,
        far: bool,
    ) {
        if let (How::Copy, [only], None) = (how, sources, scaled) {
            return targets.for_each(|target| self.put(&target, only, far));
        }
        let mut targets: SmallVec<[Region<'t>; 8]> = targets.collect();
        let streams = self.streams && !far;
        if streams {
            // What goes past the caches is no good to be copied on.
            targets.sort_by_key(|target| self.is_in_output(target));
        }
        let [first, rest @ ..] = &targets[..] else { return };
        if far && first.len() >= AHEAD && self.is_room(first) {
            return self.reduce_past(how, scaled, sources, &targets);
        }
        if !streams || rest.is_empty() {
            self.reduce(how, scaled, sources, first);
            return rest.iter().for_each(|target| self.put(target, first, far));
        }
        self.reduce_by_pieces(how, scaled, sources, |at, part| {
            let first = first.part(at, part);
            let copy = move || {
                for target in rest {
                    self.put(&target.part(at, part), &first, far);
                }
            };
            (first, copy)
        });
    }

    /// Reduces into rooms of messages for a processor that is far away: piece by piece where it is near, to copy it from there.
    #[inline(never)] // so that others do not pay for it
    fn reduce_past(
        &self,
        how: How,
        scaled: Option<(usize, u64)>,
        sources: &[Region<'_>],
        rooms: &[Region<'_>],
    ) {
        let mut near = [0u64; PIECE / 8];
        let near = Region::of_mut(&mut near);
        self.reduce_by_pieces(how, scaled, sources, |at, part| {
            let result = near.part(0, part);
            let copy = move || {
                for room in rooms {
                    room.part(at, part).stream_from(&result);
                }
            };
            (result, copy)
        });
        settle_streams();
    }

    /// Reduces piece by piece, so that each is still in the first-level cache when it is copied past it. `place` says, of where a
    /// piece begins and its bytes, where its result goes and how that is copied.
    fn reduce_by_pieces<'t, C: FnOnce()>(
        &self,
        how: How,
        scaled: Option<(usize, u64)>,
        sources: &[Region<'_>],
        place: impl Fn(usize, usize) -> (Region<'t>, C),
    ) {
        let len = sources.first().map_or(0, Region::len);
        let mut parts = SmallVec::<[Region<'_>; 8]>::new();
        for at in (0..len).step_by(PIECE) {
            let part = PIECE.min(len - at);
            parts.clear();
            parts.extend(sources.iter().map(|source| source.part(at, part)));
            let (result, copy) = place(at, part);
            self.reduce(how, scaled, &parts, &result);
            copy();
        }
    }

    fn reduce(&self, how: How, scaled: Option<(usize, u64)>, sources: &[Region<'_>], target: &Region<'_>) {
        let manner = Manner {
            tree: self.tree,
            scaled,
        };
        let finish = (how == How::ReduceLast).then_some(self.schedule.ranks as usize);
        reduce_as(self.op, self.dtype, finish, manner, sources, target);
    }

    /// Copies `result` into `target`.
    #[inline]
    fn put(&self, target: &Region<'_>, result: &Region<'_>, far: bool) {
        if target.len() < AHEAD {
            target.copy_from(result);
        } else if self.is_in_output(target) {
            match self.streams {
                true => target.stream_from(result),
                false => target.copy_from(result),
            }
        } else {
            target.copy_out_from(result, far && self.is_room(target));
        }
    }

    #[inline]
    fn is_in_output(&self, target: &Region<'_>) -> bool {
        self.output.addresses().contains(&target.as_ptr().addr())
    }

    /// Whether it is neither the caller's nor this rank's scratch memory.
    #[inline]
    fn is_room(&self, target: &Region<'_>) -> bool {
        !self.is_in_output(target) && !self.scratch.addresses().contains(&target.as_ptr().addr())
    }

    /// Orders what went past the caches before what others learn from now on.
    #[inline]
    pub(super) fn settle(&self) {
        if self.streams {
            settle_streams();
        }
    }
}

/// Bytes that stay in the first-level cache with what is read and written for them.
const PIECE: usize = 4 << 10;
/// Bytes of the shortest piece that is shared with other threads, and of the shortest part that is worth one.
const SHARED: usize = 24 << 10;
const SHARE: usize = 8 << 10;
/// Bytes of a cache line: a multiple of each element's.
const LINE: usize = 64;
/// Bytes of the shortest target that is worth more than a plain copy; short in tests, whose vectors are.
const AHEAD: usize = if cfg!(test) { LINE } else { 1 << 10 };
