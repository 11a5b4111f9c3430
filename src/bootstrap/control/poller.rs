//! [`Poller`] and [`Wire`]: epoll, and channels that are registered with it.

use crate::{
    net::{Channel, Connection, Frame, FrameError},
    sys::{
        fork::ProcessFd,
        poll::{Ready, millis},
    },
};
use rustix::{
    event::epoll::{self, CreateFlags, Event, EventData, EventFlags},
    io::Errno,
};
use std::{
    mem::MaybeUninit,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Names what is registered. Never used twice.
pub(in crate::bootstrap) type Token = u64;

/// How many one wait gives at most.
pub(super) const AT_ONCE: usize = 64;

/// The process's epoll instance. Level-triggered; what is closed leaves it by itself.
pub(super) struct Poller {
    epoll: Arc<ProcessFd>,
    next: Token,
}

impl Poller {
    /// What [`Poller::new`] takes.
    pub(super) fn instance() -> Result<ProcessFd, Errno> {
        ProcessFd::open(|| epoll::create(CreateFlags::CLOEXEC))
    }

    pub(super) fn new(epoll: Arc<ProcessFd>) -> Poller {
        Poller { epoll, next: 0 }
    }

    /// Begins to wait until `fd` can be read or is broken.
    pub(super) fn add(&mut self, fd: impl AsFd) -> Result<Token, Errno> {
        self.add_for(fd, Ready::Read)
    }

    /// Begins to wait until `fd` is `ready` or broken.
    pub(super) fn add_for(&mut self, fd: impl AsFd, ready: Ready) -> Result<Token, Errno> {
        let token = self.next;
        let flags = match ready {
            Ready::Read => EventFlags::IN,
            Ready::Write => EventFlags::OUT,
        };
        epoll::add(&self.epoll, fd, EventData::new_u64(token), flags)?;
        self.next += 1;
        Ok(token)
    }

    /// Stops waiting for `fd`, which goes on to live.
    pub(super) fn remove(&self, fd: impl AsFd) -> Result<(), Errno> {
        epoll::delete(&self.epoll, fd)
    }

    /// Says what to wait for from now on, besides a broken stream.
    pub(super) fn set(&self, fd: impl AsFd, token: Token, read: bool, write: bool) -> Result<(), Errno> {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN, read);
        flags.set(EventFlags::OUT, write);
        epoll::modify(&self.epoll, fd, EventData::new_u64(token), flags)
    }

    /// Waits, for ever without a limit, and puts into `tokens` whom to look at: [`AT_ONCE`] at most.
    pub(super) fn wait(&self, limit: Option<Duration>, tokens: &mut Vec<Token>) -> Result<(), Errno> {
        let limit = limit.map(millis);
        let mut events = [MaybeUninit::<Event>::uninit(); AT_ONCE];
        tokens.clear();
        match epoll::wait(&self.epoll, &mut events, limit.as_ref()) {
            Ok((ready, _)) => tokens.extend(ready.iter().map(|e| e.data.u64())),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        Ok(())
    }
}

/// A token that no [`Poller::add`] gives, for what other threads register.
pub(super) fn foreign_token() -> Token {
    static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
    NEXT.fetch_add(1, Relaxed)
}

/// Registers `fd` from any thread: one event when it can be read, and then no more until [`arm_once`].
pub(super) fn add_once(epoll: &ProcessFd, fd: impl AsFd, token: Token) -> Result<(), Errno> {
    let flags = EventFlags::IN | EventFlags::ONESHOT;
    epoll::add(epoll, fd, EventData::new_u64(token), flags)
}

/// Asks for one more event. [`Errno::NOENT`] when `fd` is not registered.
pub(super) fn arm_once(epoll: &ProcessFd, fd: impl AsFd, token: Token) -> Result<(), Errno> {
    let flags = EventFlags::IN | EventFlags::ONESHOT;
    epoll::modify(epoll, fd, EventData::new_u64(token), flags)
}

/// A channel and its registration.
pub(super) struct Wire {
    pub(super) channel: Channel,
    pub(super) token: Token,
    /// Whether the poller also waits for room to write.
    writing: bool,
}

impl Wire {
    /// `channel` was registered as `token` before.
    pub(super) fn new(channel: Channel, token: Token) -> Wire {
        Wire {
            channel,
            token,
            writing: false,
        }
    }

    /// The connection itself, no longer watched by `poller`; `None` if frames are under way on it.
    pub(super) fn into_connection(self, poller: &Poller) -> Option<Connection> {
        let connection = self.channel.into_connection()?;
        poller.remove(&connection.fd).ok()?;
        Some(connection)
    }

    /// Sends what goes, and has the poller wait for room for the rest.
    pub(super) fn pump(&mut self, poller: &Poller) -> Result<(), FrameError> {
        self.channel.flush()?;
        if self.channel.unsent() != self.writing {
            self.writing = !self.writing;
            poller
                .set(&self.channel, self.token, true, self.writing)
                .map_err(|e| FrameError::Io(e.into()))?;
        }
        Ok(())
    }

    /// The frames that are complete after one read.
    pub(super) fn read(&mut self) -> Result<Vec<Frame>, FrameError> {
        let mut frames = Vec::new();
        if self.channel.fill()? {
            while let Some(frame) = self.channel.next()? {
                frames.push(frame);
            }
        }
        Ok(frames)
    }
}
