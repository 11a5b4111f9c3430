//! [`Dialer`]: the client's side of a connection being made; and doing it while a thread waits.

use super::{
    Address, Channel, Frame, FrameError, Secret,
    accept::send_all,
    address::fill_random,
    frame::Packed,
    handshake::{Client, ClientProved, CommId, Hello, Refused, Role, SERVER_PROOF},
};
use crate::sys::{
    fork::ProcessFd,
    poll::{self, Ready},
    socket, tcp,
};
use rustix::io::Errno;
use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    thread,
    time::{Duration, Instant},
};

/// Whom to reach, as whom.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    /// Where it may be reached: tried in this order.
    pub(crate) addresses: Vec<Address>,
    pub(crate) role: Role,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) comm: CommId,
    pub(crate) secret: Secret,
}

/// A client's handshake in progress.
pub(crate) struct Dialer {
    stream: ProcessFd,
    stage: Stage,
    buffer: [u8; Hello::LEN],
    have: usize,
}

enum Stage {
    /// The connection itself is on its way; the bytes are our hello.
    Connecting(Client, [u8; Hello::LEN]),
    Hello(Client),
    Proof(ClientProved),
}

/// Where a handshake has got to.
pub(crate) enum Dialing {
    Waiting(Dialer),
    Met(Channel),
}

/// Why a connection was not made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    /// Nobody listens there: the process has gone.
    #[error("nobody listens there any more")]
    Nobody,
    /// The other side has no room for us at the moment: to be tried again.
    #[error("it is too busy to answer")]
    Busy,
    /// See the reason.
    #[error("{0}")]
    Refused(Refused),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl DialError {
    fn of(e: Errno) -> DialError {
        match e {
            Errno::CONNREFUSED => DialError::Nobody,
            Errno::AGAIN | Errno::INTR => DialError::Busy,
            Errno::MFILE => DialError::Io(io::Error::other("too many open files (see ulimit -n)")),
            e => DialError::Io(e.into()),
        }
    }

    /// What this says about the process that should have answered.
    pub(crate) fn how(&self) -> String {
        match self {
            DialError::Nobody => "its process does not listen any more".to_owned(),
            DialError::Refused(Refused::Unknown) => "its process does not take part any more".to_owned(),
            other => format!("its process could not be reached: {other}"),
        }
    }
}

impl Dialer {
    pub(crate) fn begin(target: &Target) -> Result<Dialer, DialError> {
        let mut nonce = [0; 32];
        fill_random(&mut nonce).map_err(io::Error::other)?;
        let hello = Hello {
            role: target.role,
            from: target.from,
            to: target.to,
            comm: target.comm,
            nonce,
        };
        let (client, bytes) = Client::begin(hello, target.secret.clone());
        let (address, stream) = first_open(&target.addresses)?;
        let stage = if address.is_tcp() {
            Stage::Connecting(client, bytes)
        } else if send_all(&stream, &bytes) {
            Stage::Hello(client)
        } else {
            return Err(DialError::Busy);
        };
        Ok(Dialer {
            stream,
            stage,
            buffer: [0; Hello::LEN],
            have: 0,
        })
    }

    /// What to wait for before [`Dialer::advance`].
    pub(crate) fn waits_for(&self) -> Ready {
        match self.stage {
            Stage::Connecting(..) => Ready::Write,
            Stage::Hello(_) | Stage::Proof(_) => Ready::Read,
        }
    }

    /// Goes on with what has come.
    pub(crate) fn advance(mut self) -> Result<Dialing, DialError> {
        if let Stage::Connecting(client, hello) = self.stage {
            if !tcp::connected(&self.stream).map_err(DialError::of)? {
                self.stage = Stage::Connecting(client, hello);
                return Ok(Dialing::Waiting(self));
            }
            tcp::tune(&self.stream).map_err(DialError::of)?;
            if !send_all(&self.stream, &hello) {
                return Err(DialError::Busy);
            }
            self.stage = Stage::Hello(client);
        }
        loop {
            let need = match self.stage {
                Stage::Connecting(..) | Stage::Hello(_) => Hello::LEN,
                Stage::Proof(_) => SERVER_PROOF,
            };
            match socket::receive_bytes(&self.stream, &mut self.buffer[self.have..need]) {
                // A server with too many unproved connections closes the oldest without a word.
                Ok(0) | Err(Errno::CONNRESET) => return Err(DialError::Busy),
                Ok(n) => self.have += n,
                Err(Errno::AGAIN) => return Ok(Dialing::Waiting(self)),
                Err(Errno::INTR) => (),
                Err(e) => return Err(DialError::Io(e.into())),
            }
            if self.have == need {
                self.have = 0;
                match self.stage {
                    Stage::Connecting(client, _) | Stage::Hello(client) => {
                        let (proved, bytes) = client.on_hello(&self.buffer).map_err(DialError::Refused)?;
                        if !send_all(&self.stream, &bytes) {
                            return Err(DialError::Busy);
                        }
                        self.stage = Stage::Proof(proved);
                    }
                    Stage::Proof(proved) => {
                        let answer = self.buffer.first_chunk::<SERVER_PROOF>();
                        let verdict = answer.map_or(Err(Refused::Garbage), |a| proved.on_proof(a));
                        verdict.map_err(DialError::Refused)?;
                        return Ok(Dialing::Met(Channel::new(self.stream)));
                    }
                }
            }
        }
    }
}

/// Begins a connection to the first address where somebody listens, as far as that is known at once. A host may have no way
/// to some, as where it has one version of IP and the other side has both.
fn first_open(addresses: &[Address]) -> Result<(Address, ProcessFd), DialError> {
    let mut failure = DialError::Nobody;
    for address in addresses {
        match address.dial().map_err(DialError::of) {
            Ok(stream) => return Ok((*address, stream)),
            Err(DialError::Busy) => return Err(DialError::Busy),
            Err(DialError::Nobody) => (),
            Err(e) => failure = e,
        }
    }
    Err(failure)
}

impl AsFd for Dialer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// How long a waiting thread goes on.
pub(crate) struct Patience<'a> {
    pub(crate) deadline: Instant,
    /// Whether waiting has become pointless; asked every [`SLICE`].
    pub(crate) stop: &'a dyn Fn() -> bool,
}

/// Why a waiting thread came back without what it waited for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("it did not answer in time")]
    Late,
    #[error("waiting became pointless")]
    Stopped,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Frame(#[from] FrameError),
}

impl Patience<'_> {
    /// Connects, trying again while the other side is busy.
    pub(crate) fn dial(&self, target: &Target) -> Result<Channel, Failure> {
        loop {
            match Dialer::begin(target)
                .map_err(Failure::from)
                .and_then(|d| self.meet(d))
            {
                Err(Failure::Dial(DialError::Busy)) => {
                    self.left()?;
                    thread::sleep(RETRY);
                }
                done => return done,
            }
        }
    }

    fn meet(&self, mut dialer: Dialer) -> Result<Channel, Failure> {
        loop {
            dialer = match dialer.advance()? {
                Dialing::Met(channel) => return Ok(channel),
                Dialing::Waiting(dialer) => dialer,
            };
            self.wait(dialer.as_fd(), dialer.waits_for())?;
        }
    }

    /// Sends a message, whole.
    pub(crate) fn send(&self, channel: &mut Channel, message: Packed) -> Result<(), Failure> {
        channel.post(message);
        loop {
            channel.flush()?;
            if !channel.unsent() {
                return Ok(());
            }
            self.wait(channel.as_fd(), Ready::Write)?;
        }
    }

    /// Waits for a message.
    pub(crate) fn receive(&self, channel: &mut Channel) -> Result<Frame, Failure> {
        loop {
            if let Some(frame) = channel.next()? {
                return Ok(frame);
            }
            if !channel.fill()? {
                self.wait(channel.as_fd(), Ready::Read)?;
            }
        }
    }

    fn wait(&self, fd: BorrowedFd<'_>, ready: Ready) -> Result<(), Failure> {
        let slice = self.left()?.min(SLICE);
        poll::wait(fd, ready, slice).map_err(|e| FrameError::Io(e.into()))?;
        Ok(())
    }

    /// The time left, if there is any and a reason to use it.
    fn left(&self) -> Result<Duration, Failure> {
        if (self.stop)() {
            return Err(Failure::Stopped);
        }
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            Err(Failure::Late)
        } else {
            Ok(left)
        }
    }
}

/// How often a waiting thread looks up.
const SLICE: Duration = Duration::from_millis(20);
/// How long to leave a busy listener alone.
const RETRY: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_without_a_way_there_are_passed_over() {
        let nowhere = Address::Tcp("255.255.255.255:1".parse().unwrap());
        let (open, _listener) = Address::listen().unwrap();
        assert_eq!(first_open(&[nowhere, open]).unwrap().0, open);
        assert!(matches!(first_open(&[nowhere]), Err(DialError::Io(_))));
    }
}
