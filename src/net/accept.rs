//! [`Greeter`]: a connection that has come in and has not proved itself yet.

use super::{
    Channel, Connection, Secret,
    address::fill_random,
    handshake::{Hello, LONGEST, Refused, Role, Server, refusal, rejection},
};
use crate::sys::{fork::ProcessFd, socket, tcp};
use rustix::{io::Errno, process::geteuid};
use std::{
    io::IoSlice,
    os::fd::{AsFd, BorrowedFd},
    time::Instant,
};

/// What a connection came in by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unix,
    Tcp,
}

/// The server's side of a handshake in progress. Its size is fixed and nothing is allocated for the other side.
pub(crate) struct Greeter {
    stream: ProcessFd,
    kind: Kind,
    /// Not one whose user's number may be anybody's here: the secret that it proves tells of it, if it does not come only to look.
    is_known: bool,
    since: Instant,
    stage: Stage,
    buffer: [u8; LONGEST],
    have: usize,
}

#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for a stranger"
)]
enum Stage {
    Hello,
    Proof(Server),
}

/// Where a handshake has got to.
pub(crate) enum Greeting {
    /// The other side has more to say.
    Waiting(Greeter),
    /// It has proved its hello.
    Met(Hello, Channel),
    /// It said this, in vain: it does not hold the secret.
    Denied(Hello, ProcessFd),
    /// It speaks this version of the protocol, which is another one.
    Foreign(u32, ProcessFd),
    /// It is a stranger, has gone, or was told why it may not come in.
    Over,
}

impl Greeter {
    /// Greets whoever is at the other end of `stream`, unless it is a Unix socket of another user (the superuser may
    /// come in).
    pub(crate) fn new(stream: ProcessFd, kind: Kind, now: Instant) -> Option<Greeter> {
        let (may_come_in, is_known) = match kind {
            Kind::Unix => {
                let uid = socket::peer_uid(&stream).ok()?;
                let is_known = socket::known_peer_uid(&stream).ok()? == uid;
                (uid == 0 || uid == geteuid().as_raw(), is_known)
            }
            Kind::Tcp => (tcp::tune(&stream).is_ok(), true),
        };
        may_come_in.then_some(Greeter {
            stream,
            kind,
            is_known,
            since: now,
            stage: Stage::Hello,
            buffer: [0; LONGEST],
            have: 0,
        })
    }

    /// When it came.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    /// Goes on with what has come. `secret` gives the secret of the communicator and rank that a hello names, if this
    /// process knows it and the hello is as it should be.
    pub(crate) fn advance(
        mut self,
        mut secret: impl FnMut(&Hello, Kind) -> Result<Secret, Refused>,
    ) -> Greeting {
        loop {
            let need = match &self.stage {
                Stage::Hello => Hello::LEN,
                Stage::Proof(server) => server.awaits(),
            };
            match socket::receive_bytes(&self.stream, &mut self.buffer[self.have..need]) {
                Ok(0) => return Greeting::Over,
                Ok(n) => self.have += n,
                Err(Errno::AGAIN) => return Greeting::Waiting(self),
                Err(Errno::INTR) => (),
                Err(_) => return Greeting::Over,
            }
            if self.have == need {
                self.have = 0;
                match self.stage {
                    Stage::Hello => match self.on_hello(&mut secret) {
                        Ok(greeter) => self = greeter,
                        Err(None) => return Greeting::Over,
                        Err(Some((version, stream))) => return Greeting::Foreign(version, stream),
                    },
                    Stage::Proof(server) => return on_proof(server, &self.buffer[..need], self.stream),
                }
            }
        }
    }

    /// Takes the client's hello; if that is the end, the other version that it speaks, where that is why.
    fn on_hello(
        self,
        secret: impl FnOnce(&Hello, Kind) -> Result<Secret, Refused>,
    ) -> Result<Greeter, Option<(u32, ProcessFd)>> {
        let mut nonce = [0; 32];
        fill_random(&mut nonce).map_err(|_| None)?;
        let hello = self.buffer.first_chunk().ok_or(None)?;
        let secret = |hello: &Hello| match hello.role {
            Role::Status if !self.is_known => Err(Refused::Unknown),
            _ => secret(hello, self.kind),
        };
        match Server::on_hello(hello, nonce, secret) {
            Ok((server, ours)) if send_all(&self.stream, &ours) => Ok(Greeter {
                stage: Stage::Proof(server),
                ..self
            }),
            Ok(_) => Err(None),
            Err(why) => {
                refusal(why).map(|answer| send_all(&self.stream, &answer));
                Err(match why {
                    Refused::Version { theirs } => Some((theirs, self.stream)),
                    _ => None,
                })
            }
        }
    }
}

impl AsFd for Greeter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

fn on_proof(server: Server, proof: &[u8], stream: ProcessFd) -> Greeting {
    match server.on_proof(proof) {
        Ok((hello, guard, answer)) if send_all(&stream, &answer) => {
            Greeting::Met(hello, Channel::new(Connection { fd: stream, guard }))
        }
        Ok(_) => Greeting::Over,
        Err((hello, _)) => {
            send_all(&stream, &rejection(&hello));
            Greeting::Denied(hello, stream)
        }
    }
}

/// Sends a message of the handshake. They are so short that a fresh socket always has room for them whole; if not,
/// the other side is none of ours.
pub(super) fn send_all(stream: &ProcessFd, bytes: &[u8]) -> bool {
    socket::send(stream, &[IoSlice::new(bytes)], &[]) == Ok(bytes.len())
}
