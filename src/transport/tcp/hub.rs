//! [`Hub`]: which of a rank's connections have something to do.

use crate::{
    sys::{fork::ProcessFd, poll::millis, splice::Pipe},
    types::Error,
};
use rustix::{
    event::epoll::{self, CreateFlags, EventData, EventFlags},
    io::Errno,
};
use smallvec::SmallVec;
use std::{
    mem::MaybeUninit,
    ops::Deref,
    os::fd::{AsFd, BorrowedFd},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

/// What happened at a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    /// Something came from `peer`.
    In { peer: usize, stream: usize },
    /// There is room again for what is sent to `peer`.
    Out { peer: usize, stream: usize },
}

/// An epoll instance over the connections of all of a rank's links, and what they have left to do.
pub(crate) struct Hub {
    epoll: ProcessFd,
    /// Connections on which something is still to be sent, and links that owe credits. One thread at a time counts.
    busy: AtomicUsize,
    owing: AtomicUsize,
    /// How often it has not looked what has come when it was [asked](Hub::ready) since the last time that it did.
    skipped: AtomicU8,
    /// Whether more may have come than was looked at, or something was put off.
    may_have_more: AtomicBool,
    /// When the last connection ended, in whichever way.
    ended: Mutex<Option<Instant>>,
    /// The token of the one connection on which something may come, if there is one alone; else [`NONE`] or [`MANY`].
    alone: AtomicU64,
    /// Connections on which the rank has something long to send, and does so when it has nothing else to do at once.
    put_off: Mutex<SmallVec<[Event; AT_ONCE]>>,
    /// Pipes that are not in use.
    pipes: Mutex<Vec<Pipe>>,
    /// With each pipe that is in use.
    in_use: Arc<()>,
    /// Whether none can be emptied into connections here.
    lacks_pipes: AtomicBool,
}

/// A pipe that is in use.
pub(super) struct UsedPipe {
    pipe: Pipe,
    _in_use: Arc<()>,
}

impl Deref for UsedPipe {
    type Target = Pipe;

    fn deref(&self) -> &Pipe {
        &self.pipe
    }
}

impl Hub {
    pub(crate) fn new() -> Result<Hub, Error> {
        let epoll = ProcessFd::open(|| epoll::create(CreateFlags::CLOEXEC));
        Ok(Hub {
            epoll: epoll.map_err(|e| Error::system("cannot make an epoll instance", e))?,
            busy: AtomicUsize::new(0),
            owing: AtomicUsize::new(0),
            skipped: AtomicU8::new(0),
            may_have_more: AtomicBool::new(false),
            ended: Mutex::default(),
            alone: AtomicU64::new(NONE),
            put_off: Mutex::default(),
            pipes: Mutex::default(),
            in_use: Arc::default(),
            lacks_pipes: AtomicBool::new(false),
        })
    }

    /// What was put off, and what has happened, of that [`AT_ONCE`] events at most; the rest comes the next time. Where something can only come on
    /// one connection, and nothing is to be sent, that one may well be read without a question.
    pub(crate) fn ready(&self) -> Result<SmallVec<[Event; AT_ONCE]>, Error> {
        let mut all = self.take_put_off();
        // That may have been all that the rank has to do. But now and then it looks what has come.
        let skipped = self.skipped.load(Relaxed);
        if !all.is_empty() && skipped < MOST_SKIPPED {
            self.skipped.store(skipped + 1, Relaxed);
            return Ok(all);
        }
        self.skipped.store(0, Relaxed);
        self.may_have_more.store(false, Relaxed);
        let alone = self.alone.load(Relaxed);
        if alone < MANY && !self.unsent() {
            all.push(Event::of(alone));
            return Ok(all);
        }
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); AT_ONCE];
        match epoll::wait(&self.epoll, &mut events, Some(&millis(Duration::ZERO))) {
            Ok((ready, _)) => {
                if ready.len() == AT_ONCE {
                    self.has_more();
                }
                all.extend(ready.iter().map(|event| Event::of(event.data.u64())));
                Ok(all)
            }
            Err(Errno::INTR) => Ok(all),
            Err(e) => Err(Error::system("epoll failed", e)),
        }
    }

    /// Has it look what has come the next time that it is [asked](Hub::ready).
    pub(crate) fn look(&self) {
        self.skipped.store(MOST_SKIPPED, Relaxed);
    }

    /// Not all that has come was looked at.
    pub(super) fn has_more(&self) {
        self.may_have_more.store(true, Relaxed);
    }

    /// Whether more may have come than was looked at when this was [asked](Hub::ready) the last time, or something was put off
    /// since.
    pub(crate) fn may_have_more(&self) -> bool {
        self.may_have_more.load(Relaxed)
    }

    /// A connection has ended just now.
    pub(super) fn one_ended(&self) -> Instant {
        let now = Instant::now();
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
        now
    }

    /// When the last connection ended, in whichever way.
    pub(crate) fn last_end(&self) -> Option<Instant> {
        *self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether pipes can be emptied into connections here, as far as is known.
    pub(super) fn has_pipes(&self) -> bool {
        !self.lacks_pipes.load(Relaxed)
    }

    /// Pipes cannot be emptied into connections here.
    pub(super) fn use_no_pipes(&self) {
        self.lacks_pipes.store(true, Relaxed);
    }

    /// An empty pipe; `None` where [`MOST_PIPES`] are in use, each by a connection that has no room, or there is no descriptor left
    /// for one.
    pub(super) fn pipe(&self) -> Option<UsedPipe> {
        if Arc::strong_count(&self.in_use) > MOST_PIPES {
            return None;
        }
        let free = self.pipes.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Some(UsedPipe {
            pipe: free.or_else(|| Pipe::new().ok())?,
            _in_use: self.in_use.clone(),
        })
    }

    /// Takes an empty pipe back.
    pub(super) fn give_back(&self, UsedPipe { pipe, .. }: UsedPipe) {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        if pipes.len() < FREE_PIPES {
            pipes.push(pipe);
        }
    }

    /// Whether something is still to be sent.
    #[inline]
    pub(crate) fn unsent(&self) -> bool {
        self.busy.load(Relaxed) + self.owing.load(Relaxed) > 0
    }

    /// Whether some link needs a sending half for the credits that it owes.
    #[inline]
    pub(crate) fn owing(&self) -> bool {
        self.owing.load(Relaxed) > 0
    }

    pub(super) fn owes(&self) {
        self.owing.fetch_add(1, Relaxed);
    }

    pub(super) fn paid(&self) {
        self.owing.fetch_sub(1, Relaxed);
    }

    /// What is to be sent on a connection is sent when the rank asks [what has happened](Hub::ready): `event` is that there is room,
    /// of a connection that is not watched.
    pub(super) fn put_off(&self, event: Event) {
        self.busy.fetch_add(1, Relaxed);
        let mut put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        put_off.push(event);
        self.has_more();
    }

    /// What was put off until now, for who does not ask soon what has happened.
    pub(crate) fn take_put_off(&self) -> SmallVec<[Event; AT_ONCE]> {
        if self.busy.load(Relaxed) == 0 {
            return SmallVec::new();
        }
        let mut put_off = self.put_off.lock().unwrap_or_else(PoisonError::into_inner);
        self.busy.fetch_sub(put_off.len(), Relaxed);
        std::mem::take(&mut *put_off)
    }

    /// Has `event` told whenever there is something to read, or room to write.
    pub(super) fn watch(&self, stream: &ProcessFd, event: Event) -> Result<(), Errno> {
        let flags = match event {
            Event::In { .. } => {
                let alone = match self.alone.load(Relaxed) {
                    NONE => event.token(),
                    _ => MANY,
                };
                self.alone.store(alone, Relaxed);
                EventFlags::IN
            }
            Event::Out { .. } => {
                self.busy.fetch_add(1, Relaxed);
                EventFlags::OUT
            }
        };
        epoll::add(&self.epoll, stream, EventData::new_u64(event.token()), flags)
    }

    /// Stops that.
    pub(super) fn unwatch(&self, stream: &ProcessFd, event: Event) {
        match event {
            Event::In { .. } => self.alone.store(MANY, Relaxed),
            Event::Out { .. } => _ = self.busy.fetch_sub(1, Relaxed),
        }
        // It can only fail if the connection is not watched.
        let _ = epoll::delete(&self.epoll, stream);
    }
}

impl AsFd for Hub {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Event {
    pub(crate) fn peer(&self) -> usize {
        match *self {
            Event::In { peer, .. } | Event::Out { peer, .. } => peer,
        }
    }

    fn token(&self) -> u64 {
        let (out, peer, stream) = match *self {
            Event::In { peer, stream } => (0, peer, stream),
            Event::Out { peer, stream } => (1, peer, stream),
        };
        (peer as u64) << 16 | (stream as u64) << 1 | out
    }

    fn of(token: u64) -> Event {
        let (peer, stream) = ((token >> 16) as usize, (token as u16 >> 1) as usize);
        match token & 1 {
            0 => Event::In { peer, stream },
            _ => Event::Out { peer, stream },
        }
    }
}

/// No token: of [`Hub::alone`].
const NONE: u64 = u64::MAX;
const MANY: u64 = u64::MAX - 1;

/// Pipes that are kept, and those in use at once, at most: a process may have few descriptors, and its user few pages in pipes.
const FREE_PIPES: usize = 2;
pub(super) const MOST_PIPES: usize = 16;
/// So often it does not look what has come, at most: credits for as many messages may be there.
const MOST_SKIPPED: u8 = 7;
/// Events taken at once.
const AT_ONCE: usize = 16;
