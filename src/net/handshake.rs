//! The handshake: both sides prove that they hold the communicator's secret, without sending it.
//!
//! ```text
//! client                                   server
//! Hello(nonce c)                    -->                 parsed; unknown communicators are told so and dropped
//!                                   <--    Hello(nonce s)
//! HMAC(secret, "client", both)      -->                 checked; only then is anything allocated for the client
//!                                   <--    verdict, HMAC(secret, "server", both, the client's proof)
//! ```
//!
//! The client proves first, so that a server is no oracle for strangers. The labels differ, so that no proof can be
//! reflected; both nonces are in each proof, so that none can be replayed. A hello by TCP says how the connection is to be
//! protected; if it is, the messages of [`noise`] go along with the two proofs. Refusals before the proof are not
//! authenticated: whoever can send one holds the other end of the socket and could as well close it.
//!
//! Everything here is a function of bytes; nonces come from outside. Integers are little-endian.

use super::{
    Guard, Protection, Secret,
    noise::{self, Initiator, Terms},
    seal::Cipher,
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use smallvec::SmallVec;
use std::fmt;

/// The version of everything that processes say to each other; both ends must have the same.
pub(crate) const VERSION: u32 = 16;

/// Stands for the meeting place where a rank number is expected.
pub(crate) const MEETING: u32 = u32::MAX;

/// Names a communicator.
pub(crate) type CommId = [u8; 16];

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Role {
    /// A rank comes to the meeting place.
    Join = 1,
    /// An edge of the control tree.
    Control = 2,
    /// A transport hands over a parcel.
    Link = 3,
    /// A rank asks whom another one waits for.
    Ask = 4,
    /// A connection that a transport keeps to send data on.
    Stream = 5,
    /// Somebody of the same user looks into a process: all its communicators. By Unix sockets the system says who that is, and the
    /// secret is one that everybody knows; by TCP it is made of the user's.
    Status = 6,
}

/// The first message of each side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) role: Role,
    /// The rank that speaks, or [`MEETING`].
    pub(crate) from: u32,
    /// The rank that is spoken to, or [`MEETING`].
    pub(crate) to: u32,
    pub(crate) comm: CommId,
    /// How all that follows the handshake is protected.
    pub(crate) protection: Protection,
    /// Whether the speaker's processor has instructions for AES.
    pub(crate) has_aes: bool,
    pub(crate) nonce: [u8; 32],
}

impl Hello {
    pub(crate) const LEN: usize = 72;

    fn encode(&self) -> [u8; Hello::LEN] {
        let mut b = [0; Hello::LEN];
        b[..8].copy_from_slice(&MAGIC);
        b[8..12].copy_from_slice(&VERSION.to_le_bytes());
        b[12] = self.role as u8;
        b[13] = self.protection as u8;
        b[14] = self.has_aes.into(); // 15 is zero
        b[16..20].copy_from_slice(&self.from.to_le_bytes());
        b[20..24].copy_from_slice(&self.to.to_le_bytes());
        b[24..40].copy_from_slice(&self.comm);
        b[40..].copy_from_slice(&self.nonce);
        b
    }

    fn decode(b: &[u8; Hello::LEN]) -> Result<Hello, Refused> {
        if b[..8] != MAGIC {
            return Err(Refused::Garbage);
        }
        let version = word(b, 8);
        if version != VERSION {
            return Err(Refused::Version { theirs: version });
        }
        let role = match b[12] {
            1 => Role::Join,
            2 => Role::Control,
            3 => Role::Link,
            4 => Role::Ask,
            5 => Role::Stream,
            6 => Role::Status,
            OTHER_PROTECTION if b[13..16] == [0; 3] => return Err(Refused::Protection),
            NO_SUCH_COMMUNICATOR if b[13..16] == [0; 3] => return Err(Refused::Unknown),
            _ => return Err(Refused::Garbage),
        };
        let protection = match b[13] {
            0 => Protection::Off,
            1 => Protection::Authenticate,
            2 => Protection::Encrypt,
            3 => Protection::Check,
            _ => return Err(Refused::Garbage),
        };
        let has_aes = match b[14..16] {
            [0, 0] => false,
            [1, 0] => true,
            _ => return Err(Refused::Garbage),
        };
        let mut hello = Hello {
            role,
            from: word(b, 16),
            to: word(b, 20),
            comm: [0; 16],
            protection,
            has_aes,
            nonce: [0; 32],
        };
        hello.comm.copy_from_slice(&b[24..40]);
        hello.nonce.copy_from_slice(&b[40..]);
        Ok(hello)
    }
}

/// A proof, and what goes along with it.
pub(crate) type Proof = SmallVec<[u8; 96]>;
/// Bytes of the longest message: the server's proof and [`noise::MESSAGE`].
pub(crate) const LONGEST: usize = SERVER_PROOF + noise::MESSAGE;
const CLIENT_PROOF: usize = 32;
const SERVER_PROOF: usize = 33;

/// Bytes of what goes along with a proof.
fn along(protection: Protection) -> usize {
    if protection.has_keys() { noise::MESSAGE } else { 0 }
}

/// The AEAD for both processors.
fn cipher(theirs: bool, ours: bool) -> Cipher {
    if theirs && ours {
        Cipher::Aes
    } else {
        Cipher::ChaCha
    }
}

/// Why a handshake did not come about, seen from our side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The other side does not speak this protocol.
    Garbage,
    /// The other side speaks another version of it.
    Version { theirs: u32 },
    /// The other side does not know the communicator, or not the rank in it.
    Unknown,
    /// The other side has its connections protected in another way.
    Protection,
    /// The other side does not hold the secret.
    WrongProof,
    /// The other side says that our proof is wrong.
    ProofRejected,
    /// There are no keys for want of randomness.
    NoKeys,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Garbage => f.write_str("the other side does not speak ccl's protocol"),
            Refused::Version { theirs } => write!(
                f,
                "the other side's library speaks version {theirs} of the protocol, this one version {VERSION}: \
                 use the same version of ccl in all processes"
            ),
            Refused::Unknown => f.write_str("the other side does not know this communicator"),
            Refused::Protection => f.write_str(
                "the other side has another CCL_ENCRYPTION or CCL_CHECKSUM: set the same on all ranks",
            ),
            Refused::NoKeys => f.write_str("no keys could be made for the connection"),
            Refused::WrongProof => f.write_str("the other side does not hold the communicator's secret"),
            Refused::ProofRejected => f.write_str("the other side did not accept our proof of the secret"),
        }
    }
}

/// The client after its hello.
#[derive(Debug)]
pub(crate) struct Client {
    ours: Hello,
    secret: Secret,
}

impl Client {
    /// Begins; the bytes are to be sent.
    pub(crate) fn begin(ours: Hello, secret: Secret) -> (Client, [u8; Hello::LEN]) {
        let bytes = ours.encode();
        (Client { ours, secret }, bytes)
    }

    /// Takes the server's hello; the bytes are to be sent.
    pub(crate) fn on_hello(self, bytes: &[u8; Hello::LEN]) -> Result<(ClientProved, Proof), Refused> {
        let theirs = Hello::decode(bytes)?;
        let wanted = Hello {
            from: self.ours.to,
            to: self.ours.from,
            has_aes: theirs.has_aes,
            nonce: theirs.nonce,
            ..self.ours
        };
        if theirs != wanted || theirs.nonce == self.ours.nonce {
            return Err(Refused::Garbage);
        }
        let ours = self.ours.encode();
        let mut proof: Proof = (mac(&self.secret, CLIENT, &[&ours, bytes]).finalize())
            .into_bytes()
            .into_iter()
            .collect();
        let expected = mac(&self.secret, SERVER, &[&ours, bytes, &proof]);
        let protection = self.ours.protection;
        let initiator = match protection.has_keys() {
            false => None,
            true => {
                let terms = Terms {
                    protection,
                    cipher: cipher(theirs.has_aes, self.ours.has_aes),
                    secret: &self.secret,
                    said: &[&ours, bytes, &proof],
                };
                let (initiator, message) = Initiator::begin(&terms).ok_or(Refused::NoKeys)?;
                proof.extend_from_slice(&message);
                Some(Box::new(initiator))
            }
        };
        let awaits = SERVER_PROOF + along(protection);
        let proved = ClientProved {
            expected,
            protection,
            initiator,
            awaits,
        };
        Ok((proved, proof))
    }
}

/// The client after its proof.
pub(crate) struct ClientProved {
    expected: Hmac<Sha256>,
    protection: Protection,
    /// Boxed, for it is large and mostly not there: where what follows has keys.
    initiator: Option<Box<Initiator>>,
    awaits: usize,
}

impl ClientProved {
    /// Bytes of the server's answer.
    pub(crate) fn awaits(&self) -> usize {
        self.awaits
    }

    /// Takes the server's answer: on success both sides have proved themselves, and this protects what follows, if it is
    /// protected.
    pub(crate) fn on_proof(self, bytes: &[u8]) -> Result<Option<Box<Guard>>, Refused> {
        let Some((&[verdict, ref proof @ ..], message)) = bytes.split_first_chunk::<SERVER_PROOF>() else {
            return Err(Refused::Garbage);
        };
        match verdict {
            ACCEPTED => (self.expected.verify_slice(proof)).map_err(|_| Refused::WrongProof)?,
            REJECTED => return Err(Refused::ProofRejected),
            _ => return Err(Refused::Garbage),
        }
        match self.initiator {
            None => Ok(Guard::without_keys(self.protection)),
            Some(initiator) => initiator.finish(message).map(Some).ok_or(Refused::WrongProof),
        }
    }
}

/// The server after the client's hello, which is not trusted yet.
pub(crate) struct Server {
    hello: Hello,
    secret: Secret,
    theirs: [u8; Hello::LEN],
    ours: [u8; Hello::LEN],
    cipher: Cipher,
}

/// What a server has that took a client's proof: a hello that is true, what protects what follows, and the bytes that are to be
/// sent.
pub(crate) type Accepted = (Hello, Option<Box<Guard>>, Proof);

impl Server {
    /// Takes the client's hello. `secret` gives the secret of the communicator and rank that it names, if there is
    /// one. On success the bytes are to be sent; on failure those of [`refusal`].
    pub(crate) fn on_hello(
        theirs: &[u8; Hello::LEN],
        nonce: [u8; 32],
        secret: impl FnOnce(&Hello) -> Result<Secret, Refused>,
    ) -> Result<(Server, [u8; Hello::LEN]), Refused> {
        let hello = Hello::decode(theirs)?;
        let secret = secret(&hello)?;
        let has_aes = Cipher::has_aes();
        let ours = Hello {
            from: hello.to,
            to: hello.from,
            has_aes,
            nonce,
            ..hello
        }
        .encode();
        let server = Server {
            hello,
            secret,
            theirs: *theirs,
            ours,
            cipher: cipher(hello.has_aes, has_aes),
        };
        Ok((server, ours))
    }

    /// Bytes of the client's proof.
    pub(crate) fn awaits(&self) -> usize {
        CLIENT_PROOF + along(self.hello.protection)
    }

    /// Takes the client's proof; on failure the bytes of [`rejection`] are to be sent, and the hello is what somebody said.
    pub(crate) fn on_proof(self, bytes: &[u8]) -> Result<Accepted, (Hello, Refused)> {
        let hello = self.hello;
        let Some((proof, message)) = bytes.split_first_chunk::<CLIENT_PROOF>() else {
            return Err((hello, Refused::Garbage));
        };
        let wrong = (hello, Refused::WrongProof);
        mac(&self.secret, CLIENT, &[&self.theirs, &self.ours])
            .verify_slice(proof)
            .map_err(|_| wrong)?;
        let mut answer = Proof::new();
        answer.push(ACCEPTED);
        let ours = mac(&self.secret, SERVER, &[&self.theirs, &self.ours, proof]);
        answer.extend_from_slice(&ours.finalize().into_bytes());
        if !hello.protection.has_keys() {
            return Ok((hello, Guard::without_keys(hello.protection), answer));
        }
        let terms = Terms {
            protection: hello.protection,
            cipher: self.cipher,
            secret: &self.secret,
            said: &[&self.theirs, &self.ours, proof],
        };
        let (guard, message) = noise::respond(&terms, message).ok_or(wrong)?;
        answer.extend_from_slice(&message);
        Ok((hello, Some(guard), answer))
    }
}

/// What to send to a client whose hello was refused: nothing to those who do not speak the protocol, else a hello
/// that says which version we speak and what does not fit.
pub(crate) fn refusal(why: Refused) -> Option<[u8; Hello::LEN]> {
    let mut bytes = [0; Hello::LEN];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes[12] = match why {
        Refused::Version { .. } | Refused::Unknown => NO_SUCH_COMMUNICATOR,
        Refused::Protection => OTHER_PROTECTION,
        _ => return None,
    };
    Some(bytes)
}

/// What to send to a client with this hello whose proof was wrong.
pub(crate) fn rejection(hello: &Hello) -> Proof {
    SmallVec::from_elem(REJECTED, SERVER_PROOF + along(hello.protection))
}

const MAGIC: [u8; 8] = *b"ccl\0wire";
const NO_SUCH_COMMUNICATOR: u8 = 255;
const OTHER_PROTECTION: u8 = 254;
const ACCEPTED: u8 = 1;
const REJECTED: u8 = 0;
const CLIENT: &[u8] = b"ccl handshake, client's proof";
const SERVER: &[u8] = b"ccl handshake, server's proof";

/// The code over `label` and `parts`. All lengths are fixed by the label, so that no two transcripts run together;
/// the codes are compared in constant time by [`Mac::verify_slice`].
fn mac(secret: &Secret, label: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    // HMAC takes keys of any length, so this cannot fail.
    let mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).expect("a key of 32 bytes");
    parts
        .iter()
        .fold(mac.chain_update(label), |m, part| m.chain_update(part))
}

fn word(bytes: &[u8; Hello::LEN], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn secret(fill: u8) -> Secret {
        Secret::new(&[fill; 32])
    }

    fn hello(nonce: u8) -> Hello {
        Hello {
            role: Role::Link,
            from: 3,
            to: 7,
            comm: [9; 16],
            protection: Protection::Off,
            has_aes: true,
            nonce: [nonce; 32],
        }
    }

    /// A whole handshake between two secrets, where `wire` may change each of the four messages.
    fn shake(
        client: u8,
        server: u8,
        wire: impl FnMut(usize, &mut [u8]),
    ) -> (Result<(), Refused>, Result<Hello, Refused>) {
        let (client, server) = shake_as(hello(1), client, server, wire);
        (client.map(|_| ()), server.map(|(hello, _)| hello))
    }

    type Guarded<T> = (T, Option<Box<Guard>>);

    fn shake_as(
        hello: Hello,
        client: u8,
        server: u8,
        mut wire: impl FnMut(usize, &mut [u8]),
    ) -> (Result<Guarded<()>, Refused>, Result<Guarded<Hello>, Refused>) {
        let (a, mut first) = Client::begin(hello, secret(client));
        wire(0, &mut first);
        let (b, mut second) = match Server::on_hello(&first, [2; 32], |_| Ok(secret(server))) {
            Ok(ok) => ok,
            Err(e) => {
                let answer = refusal(e).map(|bytes| a.on_hello(&bytes).map(|_| ()));
                let client = answer.unwrap_or(Err(Refused::Garbage));
                return (client.map(|()| ((), None)), Err(e));
            }
        };
        wire(1, &mut second);
        let (a, mut third) = match a.on_hello(&second) {
            Ok(ok) => ok,
            Err(e) => return (Err(e), Err(Refused::Garbage)),
        };
        wire(2, &mut third);
        // Where the hello was changed the server may wait for another number of bytes.
        let (theirs, mut fourth) = match b.on_proof(&third) {
            Ok((h, guard, answer)) => (Ok((h, guard)), answer),
            Err((h, e)) => (Err(e), rejection(&h)),
        };
        wire(3, &mut fourth);
        (a.on_proof(&fourth).map(|guard| ((), guard)), theirs)
    }

    #[test]
    fn protected_connections_have_keys_of_their_own() {
        for protection in [Protection::Authenticate, Protection::Encrypt] {
            for has_aes in [false, true] {
                let hello = Hello {
                    protection,
                    has_aes,
                    ..hello(1)
                };
                let (client, server) = shake_as(hello, 5, 5, |_, _| ());
                let (client, (met, server)) = (client.unwrap().1.unwrap(), server.unwrap());
                assert_eq!(met, hello);
                assert!(client.fits(&server.unwrap()), "{protection:?}");
                let (_, other) = shake_as(hello, 5, 5, |_, _| ()).1.unwrap();
                assert!(!client.fits(&other.unwrap()), "{protection:?}");
            }
        }
        assert!(shake_as(hello(1), 5, 5, |_, _| ()).0.unwrap().1.is_none());
    }

    #[test]
    fn another_protection_is_told() {
        let (a, first) = Client::begin(hello(1), secret(1));
        let why = Server::on_hello(&first, [2; 32], |_| Err(Refused::Protection))
            .err()
            .unwrap();
        assert_eq!(why, Refused::Protection);
        assert_eq!(
            a.on_hello(&refusal(why).unwrap()).err(),
            Some(Refused::Protection)
        );
    }

    #[test]
    fn equal_secrets_agree() {
        assert_eq!(shake(5, 5, |_, _| ()), (Ok(()), Ok(hello(1))));
    }

    #[test]
    fn different_secrets_are_told_on_both_sides() {
        let both = (Err(Refused::ProofRejected), Err(Refused::WrongProof));
        assert_eq!(shake(5, 6, |_, _| ()), both);
        // A server without the secret that pretends to accept is found out.
        let lie = |i: usize, m: &mut [u8]| {
            if i == 3 {
                m.fill(ACCEPTED)
            }
        };
        assert_eq!(shake(5, 6, lie).0, Err(Refused::WrongProof));
    }

    #[test]
    fn another_version_is_told_on_both_sides() {
        let old = |i: usize, m: &mut [u8]| {
            if i == 0 {
                m[8] = 77
            }
        };
        let (client, server) = shake(5, 5, old);
        assert_eq!(server, Err(Refused::Version { theirs: 77 }));
        assert!(client.is_err());
        // What an old client makes of our refusal depends on its version field, which stays where it is.
        assert_eq!(word(&refusal(server.unwrap_err()).unwrap(), 8), VERSION);
        let newer = |i: usize, m: &mut [u8]| {
            if i == 1 {
                m[8] = 78
            }
        };
        assert_eq!(shake(5, 5, newer).0, Err(Refused::Version { theirs: 78 }));
    }

    #[test]
    fn unknown_communicators_are_told() {
        let (a, first) = Client::begin(hello(1), secret(1));
        let why = Server::on_hello(&first, [2; 32], |_| Err(Refused::Unknown))
            .err()
            .unwrap();
        assert_eq!(why, Refused::Unknown);
        assert_eq!(a.on_hello(&refusal(why).unwrap()).err(), Some(Refused::Unknown));
        assert_eq!(refusal(Refused::Garbage), None);
    }

    #[test]
    fn reflected_messages_prove_nothing() {
        // Our own hello comes back.
        let (a, first) = Client::begin(hello(1), secret(5));
        assert_eq!(a.on_hello(&first).err(), Some(Refused::Garbage));
        // Even a hello that names the same rank twice, so that only the nonce could differ.
        let same = Hello { to: 3, ..hello(1) };
        let (a, first) = Client::begin(same, secret(5));
        assert_eq!(a.on_hello(&first).err(), Some(Refused::Garbage));
        // Our own proof comes back as the server's.
        let (a, _) = Client::begin(hello(1), secret(5));
        let reply = Hello {
            from: 7,
            to: 3,
            ..hello(2)
        }
        .encode();
        let (a, proof) = a.on_hello(&reply).unwrap();
        let mut answer = [ACCEPTED; SERVER_PROOF];
        answer[1..].copy_from_slice(&proof);
        assert_eq!(a.on_proof(&answer).err(), Some(Refused::WrongProof));
    }

    #[test]
    fn replayed_messages_prove_nothing() {
        let mut seen: Vec<Vec<u8>> = Vec::new();
        assert!(shake(5, 5, |_, m| seen.push(m.to_vec())).1.is_ok());
        // A stranger plays the client's old messages to a server, whose nonce is a new one.
        let first: [u8; Hello::LEN] = seen[0][..].try_into().unwrap();
        let (server, _) = Server::on_hello(&first, [3; 32], |_| Ok(secret(5))).unwrap();
        assert_eq!(server.on_proof(&seen[2]).unwrap_err().1, Refused::WrongProof);
        // And the server's old ones to a client, whose nonce is a new one.
        let (client, _) = Client::begin(hello(4), secret(5));
        let (client, _) = client.on_hello(&seen[1][..].try_into().unwrap()).unwrap();
        assert_eq!(client.on_proof(&seen[3]).err(), Some(Refused::WrongProof));
    }

    proptest! {
        #[test]
        fn any_flipped_bit_ends_it(message in 0usize..4, at in 0usize..LONGEST, bit in 0u8..8, is_protected: bool) {
            let flip = |i: usize, m: &mut [u8]| if i == message {
                let at = at % m.len();
                m[at] ^= 1 << bit;
            };
            let protection = if is_protected { Protection::Encrypt } else { Protection::Off };
            let (client, server) = shake_as(Hello { protection, ..hello(1) }, 5, 5, flip);
            prop_assert!(client.is_err());
            // The server has accepted by the time it sends the last message; otherwise it must not.
            prop_assert_eq!(server.is_ok(), message == 3);
        }

        #[test]
        fn random_bytes_are_garbage(bytes in prop::collection::vec(any::<u8>(), Hello::LEN)) {
            let bytes: [u8; Hello::LEN] = bytes.try_into().unwrap();
            let asked = |_: &Hello| -> Result<Secret, Refused> { unreachable!("the magic is wrong") };
            prop_assert_eq!(Server::on_hello(&bytes, [0; 32], asked).err(), Some(Refused::Garbage));
        }
    }
}
