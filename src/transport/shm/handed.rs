//! Memory that a link's sender hands to its receiver, which maps it to read there what else would be copied.
//!
//! A link has [`MAPPINGS`] places for it. The sender names the place and the number of an allocation beside its descriptor, and
//! goes on copying; the receiver maps it when it next looks, and says in the segment which number it has in that place; from
//! then on the sender offers. Who cannot map it says nothing. A place is used again for the next allocation once that in it
//! was freed: then no message lies there any more.

use super::{
    broken,
    layout::{MAPPINGS, Segment},
};
use crate::{
    mem::{Region, shared::Allocation},
    net::Parcel,
    sys::area::Area,
    types::Error,
};
use rustix::io::Errno;
use std::{
    cell::{Cell, RefCell},
    io,
    os::fd::OwnedFd,
    sync::{Arc, atomic::Ordering::*},
};
use tracing::debug;

/// What the sender has handed over, by place: no more than [`MAPPINGS`].
#[derive(Default)]
pub(super) struct Handed {
    all: RefCell<Vec<Arc<Allocation>>>,
    /// Whether it was said that there is no place left.
    is_said: Cell<bool>,
}

/// Where a body lies in memory that the receiver has mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) mapping: usize,
    pub(super) number: u32,
    /// Bytes before it.
    pub(super) at: usize,
}

impl Handed {
    /// Where `body` lies, if the receiver has mapped it.
    #[inline]
    pub(super) fn place(&self, segment: &Segment, body: &Region<'_>) -> Option<Place> {
        let all = self.all.borrow();
        all.iter().enumerate().find_map(|(mapping, allocation)| {
            let (at, number) = (allocation.place_of(body)?, allocation.number());
            is_mapped(segment, mapping, allocation).then_some(Place { mapping, number, at })
        })
    }

    /// Finds a place for `memory` and says what to hand over. `None` if it has one, or there is none, or no descriptor is left: then it is
    /// copied.
    pub(super) fn add(&self, segment: &Segment, memory: &Arc<Allocation>) -> io::Result<Option<Parcel>> {
        let mut all = self.all.borrow_mut();
        let is_known = |(mapping, one): &(usize, &Arc<Allocation>)| is_mapped(segment, *mapping, one);
        let on_the_way = all.iter().enumerate().filter(|one| !is_known(one)).count();
        if all.iter().any(|one| Arc::ptr_eq(one, memory)) || on_the_way >= MOST_ON_THE_WAY {
            return Ok(None);
        }
        let is_free = |one: (usize, &Arc<Allocation>)| one.1.is_freed() && is_known(&one);
        let mapping = all.iter().enumerate().position(is_free).unwrap_or(all.len());
        if mapping == MAPPINGS {
            if !self.is_said.replace(true) {
                debug!(
                    "link: memory #{} is copied: the peer maps {MAPPINGS} others",
                    memory.number()
                );
            }
            return Ok(None);
        }
        let fd = match memory.descriptor() {
            Ok(Some(fd)) => fd,
            Ok(None) => return Ok(None),
            Err(e) if lacks_descriptors(&e) => return Ok(None),
            Err(e) => return Err(e),
        };
        // The connection by which it goes takes another one.
        if fd.try_clone().is_err_and(|e| lacks_descriptors(&e)) {
            return Ok(None);
        }
        match all.get_mut(mapping) {
            Some(freed) => *freed = memory.clone(),
            None => all.push(memory.clone()),
        }
        Ok(Some(parcel(mapping, memory, fd)))
    }
}

fn lacks_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

fn is_mapped(segment: &Segment, mapping: usize, allocation: &Allocation) -> bool {
    segment.mapped.0[mapping].load(Acquire) == allocation.number()
}

fn parcel(mapping: usize, memory: &Allocation, fd: OwnedFd) -> Parcel {
    let (mapping, number) = (mapping as u32, memory.number());
    let mut bytes = Mapping::HELLO.to_vec();
    bytes.extend(mapping.to_le_bytes().iter().chain(&number.to_le_bytes()));
    bytes.extend((memory.len() as u64).to_le_bytes());
    Parcel {
        bytes,
        fds: vec![fd],
        guard: None,
    }
}

/// Memory of a peer's, mapped to be read.
pub(crate) struct Mapping {
    /// In which of the link's places.
    pub(super) place: usize,
    pub(super) number: u32,
    area: Area,
}

impl Mapping {
    /// What its parcels begin with.
    pub(super) const HELLO: &[u8] = b"ccl-memory\0\0\0\0\0\x01";

    /// Whether a parcel brings memory.
    pub(crate) fn is_hello(bytes: &[u8]) -> bool {
        bytes.starts_with(Self::HELLO)
    }

    /// Maps what `peer` has handed over. `Ok(Err)` says why the system does not.
    ///
    /// # Errors
    /// That the peer is broken, if the memory is not what it says.
    pub(crate) fn of(peer: usize, parcel: &Parcel) -> Result<io::Result<Mapping>, Error> {
        let strange = || broken(peer, "it handed over memory in a way of its own".to_owned());
        let bytes = parcel.bytes.strip_prefix(Self::HELLO).ok_or_else(strange)?;
        let (place, bytes) = bytes.split_first_chunk().ok_or_else(strange)?;
        let (number, len) = bytes.split_first_chunk().ok_or_else(strange)?;
        let [fd] = &parcel.fds[..] else {
            return Err(strange());
        };
        let place = u32::from_le_bytes(*place) as usize;
        let number = u32::from_le_bytes(*number);
        let len = u64::from_le_bytes(len.try_into().map_err(|_| strange())?);
        let len = usize::try_from(len)
            .ok()
            .filter(|&len| len > 0 && len <= isize::MAX as usize);
        let len = len
            .filter(|_| place < MAPPINGS && number != 0)
            .ok_or_else(strange)?;
        match Area::open(fd, len) {
            Err(err) if err.kind() == io::ErrorKind::InvalidData => {
                Err(broken(peer, format!("its shared memory was refused: {err}")))
            }
            area => Ok(area.map(|area| Mapping { place, number, area })),
        }
    }

    /// For the log.
    pub(crate) fn what(&self) -> String {
        format!("memory #{} of {} bytes", self.number, self.mapped())
    }

    /// The `len` bytes at `at`, if there are so many.
    #[inline]
    pub(super) fn body(&self, at: u64, len: usize) -> Option<Region<'_>> {
        self.area.region().get(usize::try_from(at).ok()?, len)
    }

    /// Bytes of address space that it takes.
    pub(super) fn mapped(&self) -> usize {
        self.area.region().len()
    }
}

/// Pieces of memory that are on their way to a receiver at a time, which looks for them only now and then.
const MOST_ON_THE_WAY: usize = 4;
