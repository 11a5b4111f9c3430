//! The process's control thread, as the other threads see it: a queue of commands and a bell.

mod event_loop;
mod member;
mod place;
mod poller;
mod source;
mod watch;

use super::{env, health::Shared, messages::Made, seat::Table};
use crate::{
    net::{Address, CommId, Packed, Protection, Secret},
    sys::{
        fork::{self, ProcessFd},
        membarrier,
        per_process::PerProcess,
        poll::{self, Ready},
        tcp, thread,
    },
    types::{Cause, Error},
};
use event_loop::EventLoop;
use poller::Poller;
pub(super) use poller::Token;
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};
use std::{
    collections::BTreeSet,
    ops::RangeInclusive,
    os::fd::{AsFd, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicBool, AtomicUsize,
            Ordering::{Relaxed, Release},
        },
    },
    time::{Duration, Instant},
};

/// A rank of a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) comm: CommId,
    pub(super) rank: u32,
}

/// What other threads want of the control thread.
pub(super) enum Command {
    /// Be the meeting place of a new id. `again`: there will be other meetings of that name if it fails, which who comes late
    /// is to wait for.
    Meet {
        comm: CommId,
        secret: Secret,
        again: bool,
    },
    /// End that meeting, if it is not over.
    Adjourn { comm: CommId, why: String },
    /// A rank of this process is about to join: let its early peers in.
    Enlist {
        shared: Arc<Shared>,
        /// The communicator's, and what is made of it for those who come to this rank.
        secret: Secret,
        own: Secret,
        protection: Protection,
        welcome: Packed,
    },
    /// It has joined.
    Seat(Key, Arc<Table>),
    /// It has not.
    Forget(Arc<Shared>),
    /// Something stopped it.
    Raise(Key, Cause),
    /// It could not reach another rank.
    Lose(Key, u32, String),
    /// It leaves.
    Leave(Key, Option<Made>),
    /// Let connections in by this socket, too.
    Listen(ProcessFd),
    /// A rank is to be woken when the poller sees this token.
    Alarm(Key, Token),
}

/// What the control thread shares with the others.
pub(super) struct Control {
    address: Address,
    ports: Mutex<Ports>,
    /// The epoll instance that the thread sleeps in.
    epoll: Arc<ProcessFd>,
    /// `None` once the thread has ended, which only a fault of the system or of ours makes it do.
    commands: Mutex<Option<Vec<Command>>>,
    bell: ProcessFd,
    /// What somebody on another host must have who wants to know how the communicators are doing, once it is known.
    keys_for_looking: OnceLock<(CommId, Secret)>,
    /// Ranks enlisted at the moment, those included of which the thread has not heard yet.
    members: AtomicUsize,
    /// Set when the process ends: all ranks leave. `said` is readable once the others have heard.
    goodbye: AtomicBool,
    said: ProcessFd,
}

/// The TCP ports where this process listens.
#[derive(Default)]
struct Ports {
    /// Those for links and ranks' seats: as a rule one.
    own: BTreeSet<u16>,
    /// Those that were asked for by number.
    named: BTreeSet<u16>,
}

/// The process's control thread; started if it does not run yet.
///
/// # Errors
/// [`Error::System`] when the system has no sockets or no thread to give.
pub(super) fn start() -> Result<Arc<Control>, Error> {
    let control = CONTROL.get_or_try_init(make)?;
    // A program may set it later. A wrong one stops those who need it.
    if control.keys_for_looking.get().is_none()
        && let Ok(Some(keys)) = env::keys_for_looking()
    {
        let _ = control.keys_for_looking.set(keys);
    }
    Ok(control.clone())
}

fn make() -> Result<Arc<Control>, Error> {
    membarrier::register_here(); // later it takes longer: there is a thread then
    fork::watch().map_err(|e| Error::system("cannot watch for forks", e))?;
    if !AT_EXIT.swap(true, Relaxed) {
        thread::at_exit(say_goodbye)
            .map_err(|e| Error::system("cannot watch for the end of the process", e))?;
    }
    let (address, listener) = Address::listen()?;
    let control = Control::new(address)?;
    let event_loop = EventLoop::new(control.clone(), listener)?;
    thread::spawn_quiet(c"ccl-control", event_loop, EventLoop::run)
        .map_err(|e| Error::system("cannot start the control thread", e))?;
    Ok(control)
}

impl Control {
    /// Of a thread that is not there yet.
    fn new(address: Address) -> Result<Arc<Control>, Error> {
        let bell = || ProcessFd::open(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK));
        let bell = || bell().map_err(|e| Error::system("cannot make an event descriptor", e));
        let epoll = Poller::instance().map_err(|e| Error::system("cannot make an epoll instance", e))?;
        Ok(Arc::new(Control {
            address,
            ports: Mutex::default(),
            epoll: Arc::new(epoll),
            commands: Mutex::new(Some(Vec::new())),
            bell: bell()?,
            keys_for_looking: OnceLock::new(),
            members: AtomicUsize::new(0),
            goodbye: AtomicBool::new(false),
            said: bell()?,
        }))
    }

    /// The Unix socket where this process listens.
    pub(super) fn address(&self) -> Address {
        self.address
    }

    /// The TCP port where this process listens from now on: one of `range`, if possible none that another one is to have (`taken`), or any.
    /// It is the same at each call, as long as that asks for no other range.
    ///
    /// # Errors
    /// [`Error::Usage`] when all of the range are in use; [`Error::System`] when the system has none to give.
    pub(super) fn listen_tcp(
        &self,
        range: Option<&RangeInclusive<u16>>,
        taken: impl Fn(u16) -> bool,
    ) -> Result<u16, Error> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |port: &&u16| range.is_none_or(|range| range.contains(port));
        if let Some(&port) = ports.own.iter().find(fits) {
            return Ok(port);
        }
        let failed = |e| Error::system("cannot listen by TCP", e);
        let (listener, port) = match range {
            None => tcp::listen(0).map_err(failed)?,
            Some(range) => first_free(range, taken)?,
        };
        self.post(Command::Listen(listener))?;
        ports.own.insert(port);
        Ok(port)
    }

    /// Listens at TCP port `port` from now on.
    ///
    /// # Errors
    /// Those of the socket, such as [`Errno::ADDRINUSE`].
    pub(super) fn listen_at(&self, port: u16) -> Result<(), Errno> {
        let mut ports = self.ports.lock().unwrap_or_else(PoisonError::into_inner);
        if !ports.named.contains(&port) && !ports.own.contains(&port) {
            let (listener, _) = tcp::listen(port)?;
            if self.post(Command::Listen(listener)).is_ok() {
                ports.named.insert(port);
            }
        }
        Ok(())
    }

    /// Has `key`'s bell rung, once, when something happens in `watched`, an epoll instance of the rank's. `token` is of
    /// [`Control::alarm`].
    pub(super) fn wake_when_ready(&self, watched: BorrowedFd<'_>, token: Token) -> Result<(), Errno> {
        match poller::arm_once(&self.epoll, watched, token) {
            Err(Errno::NOENT) => poller::add_once(&self.epoll, watched, token),
            done => done,
        }
    }

    /// A token for [`Control::wake_when_ready`], whose events wake `key`.
    pub(super) fn alarm(&self, key: Key) -> Result<Token, Error> {
        let token = poller::foreign_token();
        self.post(Command::Alarm(key, token))?;
        Ok(token)
    }

    /// Gives the thread something to do. Commands are done in order.
    ///
    /// # Errors
    /// [`Error::Internal`] when the thread has ended.
    pub(super) fn post(&self, command: Command) -> Result<(), Error> {
        if matches!(command, Command::Enlist { .. }) {
            self.members.fetch_add(1, Relaxed);
        }
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = commands.as_mut();
        queue
            .ok_or_else(|| Error::internal("the control thread has ended"))?
            .push(command);
        drop(commands);
        ring(&self.bell);
        Ok(())
    }

    /// What was posted since the last time.
    fn take(&self) -> Vec<Command> {
        let mut commands = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// The thread ends: nothing can be posted any more.
    fn close(&self) {
        *self.commands.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Listens at the first port of a range that nobody else uses; at one that is `taken` only if all others are in use.
///
/// Two processes that begin to listen at one port at the same time may both be refused: the system tells each that the other has it. So
/// ports are in use only when they are so again after a while, which differs between processes.
fn first_free(range: &RangeInclusive<u16>, taken: impl Fn(u16) -> bool) -> Result<(ProcessFd, u16), Error> {
    let (low, high) = (range.start(), range.end());
    let mut ports: Vec<u16> = range.clone().collect();
    ports.sort_by_key(|&port| taken(port)); // stable: in their order, with these behind the others
    for lap in 0..3 {
        if lap > 0 {
            std::thread::sleep(Duration::from_millis(u64::from(std::process::id() % 32) + 1));
        }
        for &port in &ports {
            match tcp::listen(port) {
                Err(Errno::ADDRINUSE) => (),
                other => return other.map_err(|e| Error::system(format!("cannot listen at port {port}"), e)),
            }
        }
    }
    Err(Error::usage(format!(
        "all ports from {low} to {high} are in use: every process of this host needs one for itself, so let CCL_PORT_RANGE have \
         as many as processes, and some more"
    )))
}

/// Adds to the count of an event descriptor. It cannot fail: the count is far from its limit, as it is reset when read.
fn ring(bell: &ProcessFd) {
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// Resets the count of an event descriptor.
fn hush(bell: &ProcessFd) {
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

/// Runs when the process ends in order: all ranks still in a communicator leave it. Takes no lock and waits for a
/// bounded time, because other threads may be in any state. In a forked child there is nothing to do.
extern "C" fn say_goodbye() {
    let _ = catch_unwind(AssertUnwindSafe(|| {
        let Some(control) = CONTROL.get() else {
            return;
        };
        if control.members.load(Relaxed) > 0 {
            control.goodbye.store(true, Release); // pairs with the Acquire of the thread that the bell wakes
            ring(&control.bell);
            // A signal ends a wait early.
            let end = Instant::now() + GOODBYE_WAIT;
            while let left = end.saturating_duration_since(Instant::now())
                && !left.is_zero()
                && poll::wait(control.said.as_fd(), Ready::Read, left).is_ok_and(|said| !said)
            {}
            tcp::leave_all_behind();
        }
    }));
}

static CONTROL: PerProcess<Arc<Control>> = PerProcess::new();
/// Whether [`say_goodbye`] is registered; forked children inherit that.
static AT_EXIT: AtomicBool = AtomicBool::new(false);

/// How long the end of the process waits for others to hear of it. Tests check that they do, not how fast they are.
const GOODBYE_WAIT: Duration = Duration::from_millis(if cfg!(test) { 20_000 } else { 100 });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_that_is_this_process_s_own_is_not_in_use() {
        let control = start().unwrap();
        let (_others, port) = tcp::listen(0).unwrap();
        assert_eq!(control.listen_at(port), Err(Errno::ADDRINUSE));
        let own = control.listen_tcp(None, |_| false).unwrap();
        assert_eq!(control.listen_at(own), Ok(()));
    }
}
