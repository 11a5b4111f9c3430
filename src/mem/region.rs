//! [`Region`]: a piece of memory that others may be writing to.

use super::copy::{BY_STRINGS, FEW, LINE, PAST, Stores, copy_lines, settle_streams};
use crate::{sys::cache::has_slow_string_copies, types::Element};
use std::{fmt, marker::PhantomData, ops::Range, ptr};

/// `len` bytes of host memory that stay mapped for `'m`, and that a peer process or an alias may read or write at
/// any time.
///
/// It is never turned into a Rust slice; bytes go in and out through raw copies and the kernels of `reduce`. What
/// protects the contents is the protocol of whoever hands regions out (a lane's flags, a schedule that was proved);
/// what protects memory safety is that every piece is bounds-checked against the whole.
#[derive(Clone, Copy)]
pub(crate) struct Region<'m> {
    base: *mut u8,
    len: usize,
    owner: PhantomData<&'m ()>,
}

// SAFETY: a region is an address and a length; whoever makes one promises (see `from_raw`) that the bytes may be
// accessed, through raw pointers, from whichever thread holds it.
unsafe impl Send for Region<'_> {}
// SAFETY: a shared region does no more than its copies, which may be on several threads already.
unsafe impl Sync for Region<'_> {}

impl<'m> Region<'m> {
    /// The region of `len` bytes at `base`.
    ///
    /// # Safety
    /// The bytes are mapped, readable, and stay so for `'m`, whichever thread uses the region. They are writable
    /// if the region is ever written. No Rust reference to them is used while the region is, except shared ones to
    /// bytes that are only read.
    pub(crate) unsafe fn from_raw(base: *mut u8, len: usize) -> Self {
        Region {
            base,
            len,
            owner: PhantomData,
        }
    }

    /// The empty region.
    pub(crate) fn empty() -> Self {
        Region {
            base: ptr::NonNull::dangling().as_ptr(),
            len: 0,
            owner: PhantomData,
        }
    }

    /// A region to read the elements of `slice` from. It must not be written: the collectives write into output
    /// buffers only.
    pub(crate) fn of<T: Element>(slice: &'m [T]) -> Self {
        // SAFETY: the borrow keeps the bytes mapped for 'm; elements are plain bytes.
        unsafe { Region::from_raw(slice.as_ptr().cast_mut().cast(), size_of_val(slice)) }
    }

    /// A region over the elements of `slice`, to read and write: any byte pattern is a valid element.
    pub(crate) fn of_mut<T: Element>(slice: &'m mut [T]) -> Self {
        // SAFETY: as in `of`, and the borrow is exclusive for 'm, so that nobody else uses a reference to the bytes.
        unsafe { Region::from_raw(slice.as_mut_ptr().cast(), size_of_val(slice)) }
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of the first byte, for comparing and for the floors that may dereference it.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.base
    }

    /// The addresses of its bytes.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.base.addr()..self.base.addr() + self.len
    }

    /// The `len` bytes from `at` on.
    ///
    /// # Panics
    /// When they do not lie inside the region.
    #[inline]
    pub(crate) fn part(&self, at: usize, len: usize) -> Region<'m> {
        match self.get(at, len) {
            Some(part) => part,
            None => self.has_no(at, len),
        }
    }

    #[cold]
    #[inline(never)]
    fn has_no(&self, at: usize, len: usize) -> ! {
        panic!("{len} bytes at {at} of a region of {} bytes", self.len)
    }

    /// The same, if they lie there.
    #[inline]
    pub(crate) fn get(&self, at: usize, len: usize) -> Option<Region<'m>> {
        let end = at.checked_add(len)?;
        // The address is within the allocation, so that it does not wrap.
        (end <= self.len).then(|| Region {
            base: self.base.wrapping_add(at),
            len,
            owner: PhantomData,
        })
    }

    /// Whether both are the same bytes.
    #[cfg(test)]
    pub(crate) fn is(&self, other: &Region<'_>) -> bool {
        ptr::eq(self.base, other.base) && self.len == other.len
    }

    /// Whether any byte belongs to both.
    pub(crate) fn overlaps(&self, other: &Region<'_>) -> bool {
        let (a, b) = (self.addresses(), other.addresses());
        !a.is_empty() && !b.is_empty() && a.start < b.end && b.start < a.end
    }

    /// Reads a byte of each page, and writes it back where it `is_written`. For memory that the system could not use: should the
    /// program not have it, it is told so where it stands, by a signal that it may handle, as by any other access.
    #[cold]
    pub(crate) fn touch(&self, is_written: bool) {
        let last = self.len.checked_sub(1);
        for at in (0..self.len).step_by(4096).chain(last) {
            let byte = self.base.wrapping_add(at);
            // SAFETY: it lies in the region, whose maker has promised that it may be accessed so.
            unsafe {
                let value = byte.read_volatile();
                if is_written {
                    byte.write_volatile(value);
                }
            }
        }
    }

    /// Copies the bytes of `from`, of the same length, here. The two may overlap.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub(crate) fn copy_from(&self, from: &Region<'_>) {
        assert_eq!(self.len, from.len, "a copy between regions of different lengths");
        if BY_STRINGS.contains(&self.len) && has_slow_string_copies() && !self.overlaps(from) {
            self.copy_lines_from(from, Stores::Plain);
        } else if !ptr::eq(self.base, from.base) {
            // SAFETY: both hold `len` mapped bytes for the lifetimes they carry; `ptr::copy` allows overlap.
            unsafe { ptr::copy(from.base, self.base, self.len) }
        }
    }

    /// Copies as [`Region::copy_from`] does, without a call for up to 64 bytes.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline(always)] // in the path of each short call
    pub(crate) fn copy_few_from(&self, from: &Region<'_>) {
        assert_eq!(self.len, from.len, "a copy between regions of different lengths");
        // SAFETY: both hold `len` mapped bytes for the lifetimes they carry.
        let is_done = unsafe { copy_few(self.base, from.base, self.len) };
        if !is_done {
            self.copy_more_from(from);
        }
    }

    #[inline(never)] // so that few bytes do not pay for it
    fn copy_more_from(&self, from: &Region<'_>) {
        self.copy_from(from);
    }

    /// Copies as [`Region::copy_few_from`] does. Where the two are the same nothing is written: they may be memory for reading only.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline(always)] // in the path of each short call
    pub(crate) fn keep(&self, from: &Region<'_>) {
        if !ptr::eq(self.base, from.base) {
            self.copy_few_from(from);
        }
    }

    /// Copies as [`Region::copy_from`] does into lines that another processor has had last, if they are many. The two are the
    /// same or apart.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub(crate) fn copy_ahead_from(&self, from: &Region<'_>) {
        match self.len < FEW {
            true => self.copy_from(from),
            false => self.copy_lines_from(from, Stores::Ahead),
        }
    }

    /// Copies as [`Region::copy_from`] does for another processor to read, for which more than a few bytes go past the caches if it
    /// is `far`: all of them are there then before what is written next. The two are the same or apart.
    ///
    /// # Panics
    /// When the lengths differ.
    #[inline]
    pub(crate) fn copy_out_from(&self, from: &Region<'_>, far: bool) {
        match far && self.len >= PAST {
            true => {
                self.copy_lines_from(from, Stores::Streaming);
                settle_streams();
            }
            false => self.copy_ahead_from(from),
        }
    }

    /// Copies as [`Region::copy_from`] does, past the caches where the processor can: for what is not read again soon, which
    /// spares reading the lines that are written. The two are the same or apart. Others see it in its order only after
    /// [`settle_streams`](super::settle_streams).
    ///
    /// # Panics
    /// When the lengths differ.
    pub(crate) fn stream_from(&self, from: &Region<'_>) {
        self.copy_lines_from(from, Stores::Streaming);
    }

    #[inline(never)] // of short copies nothing is to be seen
    fn copy_lines_from(&self, from: &Region<'_>, stores: Stores) {
        assert_eq!(self.len, from.len, "a copy between regions of different lengths");
        if ptr::eq(self.base, from.base) {
            return;
        }
        let head = self.base.align_offset(LINE).min(self.len);
        let lines = (self.len - head) / LINE;
        let copy = |at, len| {
            if len > 0 {
                self.part(at, len).copy_from(&from.part(at, len));
            }
        };
        copy(0, head);
        let (to, here) = (self.part(head, lines * LINE), from.part(head, lines * LINE));
        // SAFETY: both have so many bytes, which are mapped, and those of `to` begin at a multiple of a line.
        unsafe { copy_lines(to.base, here.base, lines, stores) };
        let tail = head + lines * LINE;
        copy(tail, self.len - tail);
    }
}

/// Copies 1 to 64 bytes by words that may overlap, as the two places may; `false` if they are more, or none.
///
/// # Safety
/// Both places have so many bytes, and `to` may be written.
#[inline(always)] // in the path of each short call
unsafe fn copy_few(to: *mut u8, from: *const u8, len: usize) -> bool {
    /// The first and the last word, which are all.
    ///
    /// # Safety
    /// As above; a word is at most so long, and at least half of it.
    #[inline]
    unsafe fn ends<W: Copy>(to: *mut u8, from: *const u8, len: usize) {
        let last = len - size_of::<W>();
        // SAFETY: both words lie within the bytes, at any address. They are read before any is written.
        unsafe {
            let words = [from.cast::<W>(), from.add(last).cast()].map(|word| word.read_unaligned());
            to.cast::<W>().write_unaligned(words[0]);
            to.add(last).cast::<W>().write_unaligned(words[1]);
        }
    }
    match len {
        // SAFETY: the caller's promises.
        33..=64 => unsafe { ends::<[u128; 2]>(to, from, len) },
        // SAFETY: as above.
        17..=32 => unsafe { ends::<u128>(to, from, len) },
        // SAFETY: as above.
        8..=16 => unsafe { ends::<u64>(to, from, len) },
        // SAFETY: as above.
        4..8 => unsafe { ends::<u32>(to, from, len) },
        // SAFETY: as above.
        2..4 => unsafe { ends::<u16>(to, from, len) },
        // SAFETY: as above.
        1 => unsafe { ends::<u8>(to, from, len) },
        _ => return false,
    }
    true
}

impl fmt::Debug for Region<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:p}, {} bytes)", self.base, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_inside() {
        let mut bytes = [1u8, 2, 3, 4];
        let whole = Region::of_mut(&mut bytes);
        assert_eq!(whole.part(4, 0).len(), 0);
        assert!(whole.part(1, 3).overlaps(&whole.part(0, 2)));
        assert!(!whole.part(2, 2).overlaps(&whole.part(0, 2)));
        whole.part(0, 2).copy_from(&whole.part(2, 2));
        assert_eq!(bytes, [3, 4, 3, 4]);
    }

    #[test]
    fn all_copies_are_right_whatever_the_place() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..2000 {
            let from: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(2600).collect();
            let mut to = vec![0u8; 2600];
            let most = [70, 520, 2500][random.usize(..3)];
            let (at, there, len) = (random.usize(..70), random.usize(..70), random.usize(..most));
            let (target, source) = (
                Region::of_mut(&mut to).part(at, len),
                Region::of(&from).part(there, len),
            );
            match random.u8(..5) {
                0 => target.copy_from(&source),
                1 => target.copy_ahead_from(&source),
                2 => target.copy_few_from(&source),
                3 => target.copy_out_from(&source, true),
                _ => target.stream_from(&source),
            }
            crate::mem::settle_streams();
            assert_eq!(to[at..at + len], from[there..there + len]);
            assert!(to[..at].iter().chain(&to[at + len..]).all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_long_copy_to_a_place_that_overlaps_is_right() {
        for (from, to) in [(0, 5), (5, 0), (0, 0), (0, 3000)] {
            let mut bytes: Vec<u8> = (0..6000).map(|i| (i % 251) as u8).collect();
            let expected = bytes[from..from + 3000].to_vec();
            let whole = Region::of_mut(&mut bytes);
            whole.part(to, 3000).copy_from(&whole.part(from, 3000));
            assert_eq!(bytes[to..to + 3000], expected);
        }
    }

    #[test]
    #[should_panic(expected = "3 bytes at 2 of a region of 4 bytes")]
    fn a_part_past_the_end_panics() {
        let mut bytes = [0u8; 4];
        let _ = Region::of_mut(&mut bytes).part(2, 3);
    }
}
