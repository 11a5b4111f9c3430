//! Links between ranks that are threads of one process.

use super::{
    links::{Links, Opener},
    shm::Bell,
};
use crate::{
    net::{Connection, Guard, Parcel, Protection},
    sys::{
        fork::ProcessFd,
        poll::{self, Ready},
        socket, tcp,
    },
    types::Error,
};
use rustix::io::Errno;
use std::{
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsFd,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::*},
    },
    time::Duration,
};

/// The links of `ranks` ranks, each for a thread of its own.
pub(crate) fn links(ranks: usize) -> Result<Vec<Links>, Error> {
    protected_links(ranks, Protection::Off)
}

/// The same, whose connections are protected so.
pub(crate) fn protected_links(ranks: usize, protection: Protection) -> Result<Vec<Links>, Error> {
    let bells = (0..ranks).map(|_| Bell::new()).collect::<Result<_, _>>()?;
    Ok(join(bells, protection))
}

/// The links of the ranks that have these bells.
pub(crate) fn join(bells: Vec<Arc<Bell>>, protection: Protection) -> Vec<Links> {
    let ranks = bells.len();
    let letterboxes: Arc<[Letterbox]> = bells.iter().cloned().map(Letterbox::new).collect();
    let links = |(rank, bell)| {
        let letterboxes = letterboxes.clone();
        Links::new(
            rank,
            ranks,
            Box::new(Local {
                rank,
                letterboxes,
                protection,
            }),
            bell,
        )
    };
    bells.into_iter().enumerate().map(links).collect()
}

/// One rank's [`Opener`].
struct Local {
    rank: usize,
    letterboxes: Arc<[Letterbox]>,
    protection: Protection,
}

impl Opener for Local {
    fn open(&self, peer: usize, parcel: Parcel) -> Result<Option<Parcel>, Error> {
        self.letterboxes[peer].put(self.rank, parcel);
        self.letterboxes[peer].bell.welcome().map(Some)
    }

    fn connect(
        &self,
        peer: usize,
        wanted: Option<usize>,
        about: &dyn Fn(usize, usize) -> Vec<u8>,
    ) -> Result<Vec<Connection>, Error> {
        let count = wanted.unwrap_or(1);
        let one = |index| {
            let (near, far) = connection().map_err(|e| Error::system("cannot connect two threads", e))?;
            let [ours, theirs] = Guard::pair(self.protection)?;
            let parcel = Parcel {
                bytes: about(index, count),
                fds: vec![far.into_owned()],
                guard: theirs,
            };
            self.letterboxes[peer].put(self.rank, parcel);
            Ok(Connection {
                fd: near,
                guard: ours,
            })
        };
        (0..count).map(one).collect()
    }

    fn arrivals(&self) -> Vec<(usize, Parcel)> {
        self.letterboxes[self.rank].empty()
    }
}

/// Both ends of a connection through the loopback device.
fn connection() -> Result<(ProcessFd, ProcessFd), Errno> {
    let (listener, port) = tcp::listen(0)?;
    let near = tcp::dial(None, SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    poll::wait(near.as_fd(), Ready::Write, CONNECTING)?;
    tcp::connected(&near)?;
    poll::wait(listener.as_fd(), Ready::Read, CONNECTING)?;
    let far = socket::accept(&listener)?.ok_or(Errno::TIMEDOUT)?;
    [&near, &far].into_iter().try_for_each(tcp::tune)?;
    Ok((near, far))
}

/// More than the loopback device ever takes.
const CONNECTING: Duration = Duration::from_secs(10);

/// Where a rank finds the parcels that other threads took in for it.
pub(crate) struct Letterbox {
    bell: Arc<Bell>,
    /// Set while there are parcels. A parcel whose flag is not seen yet is found at the next look.
    full: AtomicBool,
    parcels: Mutex<Vec<(usize, Parcel)>>,
}

impl Letterbox {
    /// An empty one. `bell` is that of the rank that empties it.
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        Letterbox {
            bell,
            full: AtomicBool::new(false),
            parcels: Mutex::default(),
        }
    }

    /// Adds a parcel and wakes the rank.
    pub(crate) fn put(&self, from: usize, parcel: Parcel) {
        // Nothing panics while it holds the lock, and a list of parcels is never half changed.
        let mut parcels = self.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        parcels.push((from, parcel));
        self.full.store(true, Release);
        drop(parcels);
        self.bell.wake();
    }

    /// Takes all parcels. Costs the load of a word where there are none.
    pub(crate) fn empty(&self) -> Vec<(usize, Parcel)> {
        if !self.full.load(Acquire) {
            return Vec::new();
        }
        let mut parcels = self.parcels.lock().unwrap_or_else(PoisonError::into_inner);
        self.full.store(false, Relaxed);
        std::mem::take(&mut parcels)
    }
}
