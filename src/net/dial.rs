//! [`Dialer`]: the client's side of a connection being made.

use super::{
    Address, Channel, Connection, Protection, Secret,
    accept::send_all,
    address::fill_random,
    handshake::{Client, ClientProved, CommId, Hello, LONGEST, Refused, Role},
    seal::Cipher,
};
use crate::sys::{fork::ProcessFd, poll::Ready, socket, tcp};
use rustix::{io::Errno, process::geteuid};
use std::{
    io,
    net::IpAddr,
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
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
    /// What is done for the connection by TCP.
    pub(crate) protection: Protection,
}

/// A client's handshake in progress.
pub(crate) struct Dialer {
    address: Address,
    stream: ProcessFd,
    /// Whether it is a Unix socket of another user.
    is_of_another: bool,
    stage: Stage,
    buffer: [u8; LONGEST],
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
    /// Nothing came back at all: a firewall may drop what is sent, or the way there is closed.
    #[error("no answer")]
    Silent,
    /// The other side has no room for us at the moment: to be tried again.
    #[error("it is too busy to answer")]
    Busy,
    /// See the reason.
    #[error("{0}")]
    Refused(Refused),
    /// This process has used up what it may have, descriptors as a rule: that says nothing of the other.
    #[error("{0}")]
    Exhausted(String),
    /// The system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl DialError {
    fn of(e: Errno) -> DialError {
        match e {
            Errno::CONNREFUSED => DialError::Nobody,
            // Who was there may have ended just now: the next try tells.
            Errno::AGAIN | Errno::INTR | Errno::CONNRESET => DialError::Busy,
            Errno::TIMEDOUT => DialError::Silent,
            Errno::MFILE => DialError::Exhausted("too many open files (see ulimit -n)".to_owned()),
            Errno::NFILE | Errno::NOMEM => DialError::Exhausted(io::Error::from(e).to_string()),
            e => DialError::Io(e.into()),
        }
    }

    /// Whether nothing came back, or somebody is there who does not speak yet.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, DialError::Silent | DialError::Busy)
    }

    /// Whether the system keeps us from it, whoever is there.
    pub(crate) fn is_forbidden(&self) -> bool {
        let forbids = |e: &io::Error| matches!(Errno::from_io_error(e), Some(Errno::ACCESS | Errno::PERM));
        matches!(self, DialError::Io(e) if forbids(e))
    }

    /// Whether it is the way that is closed, whoever is at its end.
    pub(crate) fn is_of_the_way(&self) -> bool {
        match self {
            DialError::Silent => true,
            DialError::Io(e) => Errno::from_io_error(e).is_some_and(|e| CLOSED_WAY.contains(&e)),
            DialError::Nobody | DialError::Busy | DialError::Refused(_) | DialError::Exhausted(_) => false,
        }
    }

    /// Whether the one who was to be reached, and nobody else, has said that it will not have us.
    fn is_a_word(&self) -> bool {
        use Refused::{ProofRejected, Version, WrongProof};
        matches!(
            self,
            DialError::Refused(ProofRejected | Version { .. } | WrongProof)
        )
    }

    /// What this says about the process that should have answered.
    pub(crate) fn how(&self) -> String {
        match self {
            DialError::Nobody => "its process does not listen any more".to_owned(),
            DialError::Refused(Refused::Unknown) => "its process does not take part any more".to_owned(),
            why if why.is_a_word() => {
                format!("another process is where it was, as after the job was started anew: {why}")
            }
            other => format!("its process could not be reached: {other}"),
        }
    }
}

impl Dialer {
    /// Begins at one of the addresses; by TCP from our own address `source`, if that matters.
    pub(crate) fn begin(
        target: &Target,
        address: Address,
        source: Option<IpAddr>,
    ) -> Result<Dialer, DialError> {
        let mut nonce = [0; 32];
        fill_random(&mut nonce).map_err(io::Error::other)?;
        let hello = Hello {
            role: target.role,
            from: target.from,
            to: target.to,
            comm: target.comm,
            protection: match address {
                Address::Tcp(_) => target.protection,
                Address::Unix(_) => Protection::Off, // it stays with this host and this user
            },
            has_aes: Cipher::has_aes(),
            nonce,
        };
        let (client, bytes) = Client::begin(hello, target.secret.clone());
        let stream = address.dial(source).map_err(DialError::of)?;
        let is_of_another =
            !address.is_tcp() && socket::peer_uid(&stream).is_ok_and(|uid| uid != geteuid().as_raw());
        let stage = if address.is_tcp() {
            Stage::Connecting(client, bytes)
        } else if send_all(&stream, &bytes) {
            Stage::Hello(client)
        } else {
            return Err(if is_of_another {
                DialError::Nobody
            } else {
                DialError::Busy
            });
        };
        Ok(Dialer {
            address,
            stream,
            is_of_another,
            stage,
            buffer: [0; LONGEST],
            have: 0,
        })
    }

    /// Where it goes.
    pub(crate) fn address(&self) -> Address {
        self.address
    }

    /// Whether nothing has come back yet.
    pub(crate) fn is_connecting(&self) -> bool {
        matches!(self.stage, Stage::Connecting(..))
    }

    /// Whether the other side may take the connection for made.
    pub(crate) fn has_proved(&self) -> bool {
        matches!(self.stage, Stage::Proof(_))
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
            let need = match &self.stage {
                Stage::Connecting(..) | Stage::Hello(_) => Hello::LEN,
                Stage::Proof(proved) => proved.awaits(),
            };
            match socket::receive_bytes(&self.stream, &mut self.buffer[self.have..need]) {
                // Of another user that is root, or takes itself for it, this one may be none that comes in.
                Ok(0) | Err(Errno::CONNRESET)
                    if self.is_of_another && self.have == 0 && matches!(self.stage, Stage::Hello(_)) =>
                {
                    return Err(DialError::Nobody);
                }
                // A server with too many unproved connections closes the oldest without a word.
                Ok(0) => return Err(DialError::Busy),
                Ok(n) => self.have += n,
                Err(Errno::AGAIN) => return Ok(Dialing::Waiting(self)),
                Err(Errno::INTR) => (),
                Err(e) => return Err(DialError::of(e)),
            }
            if self.have == need {
                self.have = 0;
                match self.stage {
                    Stage::Connecting(client, _) | Stage::Hello(client) => {
                        let hello = self.buffer.first_chunk();
                        let proof = hello.map_or(Err(Refused::Garbage), |hello| client.on_hello(hello));
                        let (proved, bytes) = proof.map_err(DialError::Refused)?;
                        if !send_all(&self.stream, &bytes) {
                            return Err(DialError::Busy);
                        }
                        self.stage = Stage::Proof(proved);
                    }
                    Stage::Proof(proved) => {
                        let guard = proved
                            .on_proof(&self.buffer[..need])
                            .map_err(DialError::Refused)?;
                        let connection = Connection {
                            fd: self.stream,
                            guard,
                        };
                        return Ok(Dialing::Met(Channel::new(connection)));
                    }
                }
            }
        }
    }
}

impl AsFd for Dialer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What became of the addresses at which somebody was to be reached, one after the other.
#[derive(Debug, Default)]
pub(crate) struct Round {
    telling: Option<(Address, DialError)>,
}

impl Round {
    /// The next address leads nowhere.
    ///
    /// Who speaks another version, or does not believe us, says so wherever it is. What this process lacks it lacks for all. Else where
    /// nothing came back, or somebody was busy, one may be met yet. So it is where somebody does not know us yet. Else what the first address of the network says counts, and where
    /// there is none the Unix socket.
    pub(crate) fn failed(&mut self, address: Address, why: DialError) {
        let weight = |why: &DialError| match why {
            why if why.is_a_word() => 4,
            DialError::Exhausted(_) => 3,
            DialError::Silent | DialError::Busy => 2,
            DialError::Refused(Refused::Unknown) => 1,
            _ => 0,
        };
        let is_better = self.telling.as_ref().is_none_or(|(before, told)| {
            let is_first = !before.is_tcp() && address.is_tcp();
            weight(&why) > weight(told) || (weight(&why) == weight(told) && is_first)
        });
        if is_better {
            self.telling = Some((address, why));
        }
    }

    /// What that says of who was to be reached.
    pub(crate) fn verdict(self) -> DialError {
        self.telling.map_or(DialError::Nobody, |(_, why)| why)
    }
}

/// What the kernel says where there is no way at the moment: by its routes, those into a black hole and forbidden ones included, its
/// interfaces, because nobody answers at the other end of the wire, or because no port of our address is free that leads there.
const CLOSED_WAY: [Errno; 7] = [
    Errno::NETUNREACH,
    Errno::HOSTUNREACH,
    Errno::NETDOWN,
    Errno::HOSTDOWN,
    Errno::ADDRNOTAVAIL,
    Errno::INVAL,
    Errno::ACCESS,
];

/// How long a connection may take to come about before other addresses are tried: longer than it takes to send what got lost
/// once more.
pub(crate) const SILENCE: Duration = Duration::from_millis(1300);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::poll;

    /// Who ends between the kernel's welcome and its own: the next try tells that nobody is there.
    #[test]
    fn a_listener_that_ends_at_once_is_no_fault_of_ours() {
        let (listener, port) = tcp::listen(0).unwrap();
        let address = Address::Tcp(([127, 0, 0, 1], port).into());
        let target = Target {
            addresses: vec![address],
            role: Role::Join,
            from: 0,
            to: 1,
            comm: [7; 16],
            secret: Secret::new(&[7; Secret::LEN]),
            protection: Protection::Off,
        };
        let begin = || Dialer::begin(&target, address, None).unwrap();
        let advance = |mut dialer: Dialer| loop {
            poll::wait(dialer.as_fd(), dialer.waits_for(), Duration::from_secs(10)).unwrap();
            match dialer.advance() {
                Ok(Dialing::Waiting(same)) => dialer = same,
                Ok(Dialing::Met(_)) => panic!("nobody is there"),
                Err(why) => break why,
            }
        };
        let dialer = begin();
        poll::wait(listener.as_fd(), Ready::Read, Duration::from_secs(10)).unwrap();
        drop(listener);
        let why = advance(dialer);
        assert!(matches!(why, DialError::Busy), "{why:?}");
        let why = advance(begin());
        assert!(matches!(why, DialError::Nobody), "{why:?}");
        assert!(matches!(DialError::of(Errno::TIMEDOUT), DialError::Silent));
    }

    #[test]
    fn the_first_address_of_the_network_says_what_is_wrong() {
        let (unix, _listener) = Address::listen().unwrap();
        let [first, second] = ["10.0.0.1:1", "10.0.0.2:1"].map(|at| Address::Tcp(at.parse().unwrap()));
        let verdict = |failures: Vec<(Address, DialError)>| {
            let mut round = Round::default();
            failures.into_iter().for_each(|(at, why)| round.failed(at, why));
            round.verdict()
        };
        assert!(matches!(verdict(vec![]), DialError::Nobody));
        assert!(matches!(
            verdict(vec![
                (unix, DialError::Nobody),
                (first, DialError::Silent),
                (second, DialError::Nobody)
            ]),
            DialError::Silent
        ));
        // The first may be somebody else's, where the second has lost a packet.
        for first_says in [DialError::Nobody, DialError::Io(Errno::NETUNREACH.into())] {
            let failures = vec![(first, first_says), (second, DialError::Silent)];
            assert!(matches!(verdict(failures), DialError::Silent));
        }
        // It is there, and will know us.
        let early = || DialError::Refused(Refused::Unknown);
        for failures in [
            vec![(first, DialError::Nobody), (second, early())],
            vec![(first, early()), (second, DialError::Nobody)],
        ] {
            assert!(matches!(verdict(failures), DialError::Refused(Refused::Unknown)));
        }
        let wrong = DialError::Refused(Refused::ProofRejected);
        assert!(matches!(
            verdict(vec![
                (first, DialError::Silent),
                (second, wrong),
                (second, DialError::Nobody)
            ]),
            DialError::Refused(Refused::ProofRejected)
        ));
    }
}
