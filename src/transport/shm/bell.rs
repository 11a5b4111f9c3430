//! The bell of a rank: what its peers ring when it sleeps.
//!
//! A word that says whether the rank sleeps lies in a page that all its peers map. Before it sleeps the rank *arms*
//! the bell and looks at its links once more; a peer that has published something (a message, or room for one) looks
//! at the word and wakes the rank if it was armed. One of the two sees the other's store if both put a full barrier
//! between their store and their load:
//!
//! ```text
//! sleeper, arm():  state = ARMED;  barrier;  look at the links        -> nothing there: sleep while state == ARMED
//! peer:            publish;        barrier;  ring(): state == ARMED?  -> state = AWAKE, wake the sleeper
//! ```
//!
//! The peer's barrier would sit in the path of every message (it took 20 of the 90 ns in which two ranks exchange 8
//! bytes), while hardly any message finds a sleeper. So where the kernel allows it the sleeper makes both barriers
//! ([`membarrier::everywhere`]), and a ring is the load of a word that is in the cache. Each bell says in its page
//! whether its owner does that; a peer fences for itself if it does not, or if the peer's own process could not be
//! registered for it.
//!
//! The kernel's barrier can miss a processor: one that idled at the moment when its last process registered, and that has run
//! no other process since (it is not told of the registration; seen on Linux 6.18). A ring may then be lost, but only to a
//! peer that published in the moment of `arm()`: a store leaves its processor within a fraction of a microsecond. So the
//! sleeper's first sleep is short ([`Bell::doze`]), and it looks at the links once more after it.
//!
//! Source of the asymmetric barrier: `folly/synchronization/AsymmetricThreadFence.h`.

#[cfg(test)]
mod tests;

use crate::{
    net::Parcel,
    sys::{
        fork::ProcessFd,
        futex, membarrier,
        memfd::{Layout, Shared},
    },
    types::Error,
};
use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::*, compiler_fence, fence},
    },
    time::Duration,
};

/// A rank's own bell. One thread at a time arms it and sleeps; any thread may [`wake`](Bell::wake) it.
pub(crate) struct Bell {
    page: Shared<Page>,
    fd: ProcessFd,
    /// This process is registered for other processes' barriers, and makes them itself.
    asymmetric: bool,
}

impl Bell {
    /// A bell that nobody else knows of yet.
    pub(crate) fn new() -> Result<Arc<Bell>, Error> {
        Bell::with(membarrier::register())
    }

    /// `asymmetric` only in a process that is registered.
    pub(super) fn with(asymmetric: bool) -> Result<Arc<Bell>, Error> {
        let (page, fd) = Shared::<Page>::create("ccl-bell")
            .map_err(|err| Error::system("the shared memory of this rank's bell could not be made", err))?;
        page.asymmetric.store(asymmetric.into(), Release);
        let fd = ProcessFd::adopt(fd);
        Ok(Arc::new(Bell { page, fd, asymmetric }))
    }

    /// What a peer that opens a link to this rank is given in return.
    pub(crate) fn welcome(&self) -> Result<Parcel, Error> {
        Ok(Parcel {
            bytes: hello(),
            fds: vec![self.descriptor()?],
            guard: None,
        })
    }

    /// A descriptor of the page, to be handed to a peer.
    pub(super) fn descriptor(&self) -> Result<OwnedFd, Error> {
        self.fd
            .as_fd()
            .try_clone_to_owned()
            .map_err(|err| Error::system("the descriptor of this rank's bell could not be copied", err))
    }

    /// Says that this rank is about to sleep: from now on whatever a peer publishes rings. What was published before is
    /// seen by looking once more, which the caller does before [`Bell::sleep`].
    pub(crate) fn arm(&self) {
        self.page.state.store(ARMED, SeqCst);
        // Pairs with the fence or the compiler fence in `Ringer::ring` and with the fence in `Bell::wake`.
        fence(SeqCst);
        if self.asymmetric && !membarrier::everywhere() {
            // It had worked when the process was registered; without it a ring may be missed. `sleep` will not.
            self.page.state.store(AWAKE, SeqCst);
        }
    }

    /// The first sleep after [`Bell::arm`], much longer than a store can be on its way; none where no ring is ever lost. The caller
    /// looks at its links again before [`Bell::sleep`], which finds what a lost ring was for.
    pub(crate) fn doze(&self) {
        if self.asymmetric {
            self.sleep(DOZE);
        }
    }

    /// Sleeps until the armed bell is rung, for at most `timeout`; not at all if it was rung since it was armed. `false`
    /// when the time has passed. It may also wake up for no reason.
    pub(crate) fn sleep(&self, timeout: Duration) -> bool {
        futex::wait(&self.page.state, ARMED, timeout)
    }

    /// Ends what [`Bell::arm`] began, after a sleep or instead of one.
    pub(crate) fn disarm(&self) {
        // Acquires what a peer released by its ring.
        self.page.state.swap(AWAKE, AcqRel);
    }

    /// Rings this rank's own bell from another thread of its process, e.g. when it must stop.
    pub(crate) fn wake(&self) {
        fence(SeqCst);
        self.page.ring_if_armed();
    }

    /// Bytes of address space that it takes.
    pub(crate) fn mapped(&self) -> usize {
        self.page.mapped()
    }
}

/// A peer's bell.
pub(super) struct Ringer {
    page: Shared<Page>,
    /// Nobody else makes the barrier between our publishing and our look at the bell.
    fence: bool,
}

impl Ringer {
    /// The bell behind a descriptor that a peer handed to the owner of `ours`.
    pub(super) fn open(fd: impl AsFd, ours: &Bell) -> io::Result<Ringer> {
        let page = Shared::<Page>::open(fd)?;
        // A peer that lies here misses rings that are meant for itself.
        let fence = !(ours.asymmetric && page.asymmetric.load(Acquire) == 1);
        Ok(Ringer { page, fence })
    }

    /// The bell in a [`Bell::welcome`].
    pub(super) fn welcomed(parcel: &Parcel, ours: &Bell) -> io::Result<Ringer> {
        match &parcel.fds[..] {
            [fd] if parcel.bytes == hello() => Ringer::open(fd, ours),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the welcome is not that of this version of the shared memory transport",
            )),
        }
    }

    /// Wakes the peer if it sleeps. To be called after each store that the peer may be waiting for.
    #[inline]
    pub(super) fn ring(&self) {
        // Pairs with the barrier in `Bell::arm`.
        if self.fence {
            fence(SeqCst);
        } else {
            compiler_fence(SeqCst);
        }
        self.page.ring_if_armed();
    }

    pub(super) fn mapped(&self) -> usize {
        self.page.mapped()
    }
}

/// Aligned so that nothing else ever shares its line.
#[repr(C, align(128))]
struct Page {
    /// [`AWAKE`] or [`ARMED`]; the futex. Rarely written, so that it stays in the cache of all who ring.
    state: AtomicU32,
    /// 1 when the owner's `arm` makes the barrier for those who ring. Set before anybody else sees the page.
    asymmetric: AtomicU32,
}

// SAFETY: repr(C), atomics of integers only, aligned to less than a page.
unsafe impl Layout for Page {}

const AWAKE: u32 = 0;
const ARMED: u32 = 1;

const DOZE: Duration = Duration::from_millis(1);

impl Page {
    #[inline]
    fn ring_if_armed(&self) {
        if self.state.load(Relaxed) == ARMED {
            self.ring();
        }
    }

    /// One of those who ring together wakes the sleeper. A ring that comes late, when the sleeper is up and armed again,
    /// makes it look once more for nothing.
    #[cold]
    fn ring(&self) {
        if self.state.swap(AWAKE, AcqRel) == ARMED {
            futex::wake(&self.state);
        }
    }
}

fn hello() -> Vec<u8> {
    b"ccl-bell\x01".to_vec()
}
