//! [`Door`]: rank 0's side of a meeting on one host. It hands the unique id to the other ranks of the job.

use super::words::{Answer, Hello};
use crate::{
    bootstrap::UniqueId,
    sys::{
        fork::{self, ProcessFd},
        poll::{self, Ready},
        socket, thread,
    },
    types::{Error, Result},
};
use rustix::{
    event::{EventfdFlags, eventfd},
    io::Errno,
};
use std::{
    collections::VecDeque,
    io::IoSlice,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// A door that is open until this is dropped or [`Door::close`]d: a thread of its own answers there, because rank 0
/// itself waits for the others meanwhile.
pub(super) struct Door {
    stop: Arc<Stop>,
    /// What the thread says last: why it turned ranks away.
    end: mpsc::Receiver<Vec<String>>,
}

struct Stop {
    set: AtomicBool,
    bell: ProcessFd,
}

impl Door {
    /// Begins to hand out `id` at `place`, an abstract name, to ranks of `user` that fit `ours`, rank 0's hello.
    ///
    /// # Errors
    /// [`Error::Init`] when somebody else has the name; [`Error::System`].
    pub(super) fn open(place: &str, user: u32, id: &UniqueId, ours: Hello) -> Result<Door> {
        fork::watch().map_err(|e| Error::system("cannot watch for forks", e))?;
        let listener = socket::listen(place.as_bytes()).map_err(|error| match error {
            Errno::ADDRINUSE => Error::Init {
                what: taken(place, user),
            },
            error => Error::system(format!("cannot listen at unix:@{place}"), error),
        })?;
        let bell = ProcessFd::open(|| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK))
            .map_err(|e| Error::system("cannot make an event descriptor", e))?;
        let stop = Arc::new(Stop {
            set: AtomicBool::new(false),
            bell,
        });
        let (last_words, end) = mpsc::channel();
        let porter = Porter {
            listener,
            user,
            ours,
            id: Answer::Id(Zeroizing::new(id.to_bytes())),
            guests: VecDeque::new(),
            turned_away: Vec::new(),
            stop: Arc::clone(&stop),
            last_words,
        };
        // The thread's state is kept for ever, so the porter is taken out of it; boxed, so that no bytes of the id stay.
        thread::spawn_quiet(c"ccl-env", Some(Box::new(porter)), |porter| {
            if let Some(porter) = porter.take() {
                porter.work();
            }
        })
        .map_err(|e| Error::system("cannot start a thread", e))?;
        Ok(Door { stop, end })
    }

    /// Closes the door; says why ranks were turned away. The name is free afterwards.
    pub(super) fn close(self) -> Vec<String> {
        self.stop.ring();
        // A thread that panicked has said nothing.
        self.end.recv().unwrap_or_default()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.ring();
    }
}

impl Stop {
    fn ring(&self) {
        self.set.store(true, Relaxed);
        // It cannot fail: the count is far from its limit.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }
}

/// Why the name could not be had, by who listens there.
fn taken(place: &str, user: u32) -> String {
    let holder = socket::dial(place.as_bytes()).and_then(socket::known_peer_uid);
    match holder {
        Ok(uid) if uid != user => format!(
            "a process of {} has the name unix:@{place}, where the ranks of this job meet: give the job \
             another MASTER_PORT, or have that process ended",
            socket::tell_user(uid)
        ),
        _ => format!(
            "another process is at unix:@{place}, where the ranks of this job meet: a second rank 0 of the same \
             job, or rank 0 of another one that has the same variables. Start rank 0 once, end what is left of an \
             earlier run, and give each job a MASTER_PORT of its own"
        ),
    }
}

/// Who stands at the door: works on a thread of its own.
struct Porter {
    listener: ProcessFd,
    user: u32,
    ours: Hello,
    id: Answer,
    /// Those that have not said their hello yet, the oldest first.
    guests: VecDeque<Guest>,
    turned_away: Vec<String>,
    stop: Arc<Stop>,
    last_words: mpsc::Sender<Vec<String>>,
}

/// A connection of the same user.
struct Guest {
    stream: ProcessFd,
    since: Instant,
    hello: [u8; Hello::LEN],
    have: usize,
}

impl Porter {
    fn work(mut self) {
        while !self.stop.set.load(Relaxed) {
            self.wait();
            self.admit();
            let now = Instant::now();
            for guest in std::mem::take(&mut self.guests) {
                self.listen_to(guest, now);
            }
        }
        let Porter {
            listener,
            guests,
            turned_away,
            last_words,
            ..
        } = self;
        // Whoever hears the last words finds the name free.
        drop((listener, guests));
        // Nobody listens if rank 0 was stopped by a panic.
        let _ = last_words.send(turned_away);
    }

    /// Waits until there is something to do.
    fn wait(&self) {
        let oldest = self.guests.front().map(|guest| guest.since + HELLO_LIMIT);
        let limit = oldest.map_or(LOOK_UP, |at| at.saturating_duration_since(Instant::now()));
        let guests = self.guests.iter().map(|guest| guest.stream.as_fd());
        let all: Vec<_> = [self.listener.as_fd(), self.stop.bell.as_fd()]
            .into_iter()
            .chain(guests)
            .map(|fd| (fd, Ready::Read))
            .collect();
        if poll::wait_any(&all, limit).is_err() {
            std::thread::sleep(PAUSE); // no memory: later
        }
    }

    /// Lets in who knocks, a while at most. When too many wait, the one that has waited longest for nothing goes; a
    /// rank that meets that fate comes again.
    fn admit(&mut self) {
        for _ in 0..MOST_GUESTS {
            match socket::accept(&self.listener) {
                Ok(None) => return,
                Ok(Some(stream)) if socket::known_peer_uid(&stream) == Ok(self.user) => {
                    let guest = Guest {
                        stream,
                        since: Instant::now(),
                        hello: [0; Hello::LEN],
                        have: 0,
                    };
                    self.listen_to(guest, Instant::now());
                    if self.guests.len() > MOST_GUESTS {
                        self.guests.pop_front();
                    }
                }
                Ok(Some(_another_user)) => {}
                Err(_) => {
                    std::thread::sleep(PAUSE); // too many open files: later
                    return;
                }
            }
        }
    }

    /// Takes what has come from `guest`; keeps it if more is to come.
    fn listen_to(&mut self, mut guest: Guest, now: Instant) {
        match socket::receive_bytes(&guest.stream, &mut guest.hello[guest.have..]) {
            Ok(0) => return,
            Ok(n) => guest.have += n,
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => return,
        }
        if guest.have == Hello::LEN {
            self.answer(&guest);
        } else if now.duration_since(guest.since) < HELLO_LIMIT {
            self.guests.push_back(guest);
        }
    }

    fn answer(&mut self, guest: &Guest) {
        let Some(hello) = Hello::decode(&guest.hello) else {
            return; // a stranger
        };
        let refusal = hello.refusal(&self.ours);
        if let Some(why) = &refusal
            && self.turned_away.len() < MOST_REASONS
            && !self.turned_away.contains(why)
        {
            self.turned_away.push(why.clone());
        }
        let refusal = refusal.map(Answer::Refused);
        let bytes = refusal.as_ref().unwrap_or(&self.id).encode(self.ours.version);
        // A fresh socket has room for it whole; whoever does not take it is none of ours, or comes again.
        let _ = socket::send(&guest.stream, &[IoSlice::new(&bytes)], &[]);
    }
}

/// The most connections that have not said their hello.
const MOST_GUESTS: usize = 64;
/// How long a hello may take.
const HELLO_LIMIT: Duration = Duration::from_secs(5);
/// How long to wait when nobody has to be watched; the bell ends it.
const LOOK_UP: Duration = Duration::from_secs(60);
/// How long to leave the system alone that has refused something.
const PAUSE: Duration = Duration::from_millis(5);
/// How many refusals are kept for rank 0's error.
const MOST_REASONS: usize = 4;
