//! [`Guard`]: what protects the bytes of a connection, record by record.
//!
//! ```text
//! record = length of the body (4 bytes, little-endian), body, tag (16 bytes)
//! ```
//!
//! The tag is that of an AEAD: over the body, which is encrypted, or, where data is only authenticated, over the body as it is; or
//! a checksum without a key, where nobody is to be kept from anything. Each direction has a key of its own and counts its
//! records in the nonce, so that one that is altered, repeated, left out or in another's place does not verify; nor does one
//! whose length was altered. After a record that does not verify nothing more is taken from the connection.

use super::{Secret, fill_random};
use crate::{
    sys::{fork::ProcessFd, socket, tcp},
    types::Error,
};
use ring::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustix::io::Errno;
use std::{fmt, io::IoSlice, ops::Range};
use zeroize::Zeroizing;

/// What is done for the traffic by TCP. The same on all ranks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Protection {
    #[default]
    Off = 0,
    /// Whoever is on the way can read it, and not alter it.
    Authenticate = 1,
    /// Nor read it.
    Encrypt = 2,
    /// Whoever is on the way can do both, but what changes by accident is noticed.
    Check = 3,
}

impl Protection {
    /// Whether both sides make keys of the secret for it.
    pub(super) fn has_keys(self) -> bool {
        matches!(self, Protection::Authenticate | Protection::Encrypt)
    }
}

/// The two AEADs, both with keys of 32 bytes and tags of 16.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cipher {
    /// AES-256-GCM, for processors with instructions for it.
    Aes,
    /// ChaCha20-Poly1305.
    ChaCha,
}

/// A connection, and what protects it, if it is protected.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) fd: ProcessFd,
    pub(crate) guard: Option<Box<Guard>>,
}

/// Both directions of one end of a connection.
pub(crate) struct Guard {
    pub(crate) sealer: Sealer,
    pub(crate) opener: Opener,
}

/// Makes records of bytes, and sends them.
pub(crate) struct Sealer {
    code: Code,
    /// A record, or what of it has not gone yet.
    sealed: Vec<u8>,
    gone: usize,
}

/// Makes bytes of records that come.
pub(crate) struct Opener {
    code: Code,
    /// What has come: `begin..end` is still sealed, `plain` is verified and not taken yet.
    bytes: Vec<u8>,
    begin: usize,
    end: usize,
    plain: Range<usize>,
    /// A record did not verify.
    is_broken: bool,
    /// What the system said when there was still something to give.
    failed: Option<Errno>,
}

/// Why a record was not taken, for who tells of its sender.
pub(crate) const ALTERED: &str = "what it sent was altered on its way (a record does not verify)";

impl Cipher {
    /// Whether [`Cipher::Aes`] suits this processor.
    pub(super) fn has_aes() -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            std::arch::is_x86_feature_detected!("aes") && std::arch::is_x86_feature_detected!("pclmulqdq")
        }
        #[cfg(target_arch = "aarch64")]
        {
            std::arch::is_aarch64_feature_detected!("aes")
        }
    }

    fn algorithm(self) -> &'static aead::Algorithm {
        match self {
            Cipher::Aes => &aead::AES_256_GCM,
            Cipher::ChaCha => &aead::CHACHA20_POLY1305,
        }
    }
}

impl Guard {
    /// `None` without any protection.
    pub(super) fn new(
        protection: Protection,
        cipher: Cipher,
        sends: &[u8; Secret::LEN],
        receives: &[u8; Secret::LEN],
    ) -> Option<Box<Guard>> {
        let encrypts = match protection {
            Protection::Off | Protection::Check => return Guard::without_keys(protection),
            Protection::Authenticate => false,
            Protection::Encrypt => true,
        };
        Some(Guard::of(
            Code::Aead(Key::new(cipher, encrypts, sends)?),
            Code::Aead(Key::new(cipher, encrypts, receives)?),
        ))
    }

    /// Where no keys are needed; `None` without any protection.
    pub(super) fn without_keys(protection: Protection) -> Option<Box<Guard>> {
        let check = || Code::Check { records: 0 };
        (protection == Protection::Check).then(|| Guard::of(check(), check()))
    }

    fn of(sends: Code, receives: Code) -> Box<Guard> {
        Box::new(Guard {
            sealer: Sealer {
                code: sends,
                sealed: Vec::new(),
                gone: 0,
            },
            opener: Opener {
                code: receives,
                bytes: Vec::new(),
                begin: 0,
                end: 0,
                plain: 0..0,
                is_broken: false,
                failed: None,
            },
        })
    }

    /// Whether nothing is under way in it.
    pub(super) fn is_idle(&self) -> bool {
        !self.sealer.is_pending() && self.opener.plain.is_empty() && self.opener.begin == self.opener.end
    }

    /// Whether `other` belongs to the other end of a connection, of which nothing went over yet.
    #[cfg(test)]
    pub(super) fn fits(&self, other: &Guard) -> bool {
        let agree = |from: &Code, to: &Code| {
            let [mut from, mut to] = [from, to].map(Code::twin);
            let mut record = *b"body";
            let tag = from.seal(&mut record).unwrap();
            let mut record = [&record[..], &tag].concat();
            to.open(&mut record).is_some()
        };
        agree(&self.sealer.code, &other.opener.code) && agree(&other.sealer.code, &self.opener.code)
    }

    /// The guards of both ends of a connection inside this process.
    ///
    /// # Errors
    /// [`Error::System`] for want of randomness.
    pub(crate) fn pair(protection: Protection) -> Result<[Option<Box<Guard>>; 2], Error> {
        let mut keys = [(); 2].map(|()| Zeroizing::new([0; Secret::LEN]));
        keys.iter_mut().try_for_each(|key| fill_random(&mut **key))?;
        let [a, b] = keys;
        let cipher = match Cipher::has_aes() {
            true => Cipher::Aes,
            false => Cipher::ChaCha,
        };
        Ok([
            Guard::new(protection, cipher, &a, &b),
            Guard::new(protection, cipher, &b, &a),
        ])
    }
}

impl Sealer {
    /// Whether something that was taken has not gone yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.gone < self.sealed.len()
    }

    /// Takes as much of `bytes` as a record holds, once all before it has gone, and sends what goes without waiting. Returns the
    /// bytes that were taken; the memory in which they lay is not used any more. [`Sealer::flush`] sends the rest.
    pub(crate) fn send(&mut self, stream: &ProcessFd, bytes: &[IoSlice<'_>]) -> Result<usize, Errno> {
        self.flush(stream)?;
        let taken = self.seal(bytes.iter().map(|slice| &**slice))?;
        match self.flush(stream) {
            Ok(()) | Err(Errno::AGAIN) => Ok(taken),
            Err(e) => Err(e),
        }
    }

    /// Sends what was taken; [`Errno::AGAIN`] while some of it has to wait.
    pub(crate) fn flush(&mut self, stream: &ProcessFd) -> Result<(), Errno> {
        while self.is_pending() {
            match tcp::send(stream, &[IoSlice::new(&self.sealed[self.gone..])]) {
                Ok(n) => self.gone += n,
                Err(Errno::INTR) => (),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Makes a record, all before it having gone.
    fn seal<'b>(&mut self, bytes: impl Iterator<Item = &'b [u8]> + Clone) -> Result<usize, Errno> {
        self.sealed.clear();
        self.gone = 0;
        self.sealed.extend_from_slice(&[0; HEAD]);
        let all = bytes.clone().map(<[u8]>::len).sum::<usize>();
        self.sealed.reserve_exact(all.min(MAX_BODY) + TAG);
        for part in bytes {
            let room = HEAD + MAX_BODY - self.sealed.len();
            self.sealed.extend_from_slice(&part[..part.len().min(room)]);
        }
        let len = self.sealed.len() - HEAD;
        self.sealed[..HEAD].copy_from_slice(&self.code.head(len).to_le_bytes());
        let Some(tag) = self.code.seal(&mut self.sealed[HEAD..]) else {
            self.sealed.clear(); // what is not sealed is not sent
            return Err(Errno::MSGSIZE);
        };
        self.sealed.extend_from_slice(&tag);
        Ok(len)
    }
}

impl Opener {
    /// Receives into `first` and then `second` what has come, as [`tcp::receive`]: fewer bytes than there is room for are all that
    /// there was. 0 is the end of the stream.
    ///
    /// # Errors
    /// [`Errno::BADMSG`] for a record that does not verify, and whatever comes after it.
    pub(crate) fn receive(
        &mut self,
        stream: &ProcessFd,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Result<usize, Errno> {
        let (mut got, room) = (0, first.len() + second.len());
        let mut is_drained = false;
        loop {
            while got < room {
                if self.plain.is_empty() {
                    match self.open()? {
                        Some(plain) => self.plain = plain,
                        None => break,
                    }
                }
                let to = match got.checked_sub(first.len()) {
                    None => &mut first[got..],
                    Some(at) => &mut second[at..],
                };
                let len = to.len().min(self.plain.len());
                to[..len].copy_from_slice(&self.bytes[self.plain.start..][..len]);
                self.plain.start += len;
                got += len;
            }
            match got {
                0 if is_drained => return Err(Errno::AGAIN),
                got if got == room || is_drained => return Ok(got),
                _ => {}
            }
            match self.read(stream) {
                Ok((0, _)) => return Ok(got),
                Ok((n, space)) => is_drained = n < space,
                Err(Errno::INTR) => {}
                Err(e) if got > 0 => {
                    self.failed = Some(e).filter(|&e| e != Errno::AGAIN); // it says so once
                    return Ok(got);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether there is more to [receive](Opener::receive) without the system.
    pub(crate) fn has_more(&self) -> bool {
        !self.plain.is_empty()
            || self.is_broken
            || self.failed.is_some()
            || self.total().is_none_or(|total| total <= self.sealed())
    }

    /// Bytes of memory.
    pub(crate) fn allocated(&self) -> usize {
        self.bytes.capacity()
    }

    /// Reads once, and gives `take` all that is complete then; `false` at the end of the stream.
    ///
    /// # Errors
    /// As [`Opener::receive`].
    pub(super) fn fill(&mut self, stream: &ProcessFd, mut take: impl FnMut(&[u8])) -> Result<bool, Errno> {
        let (got, _) = self.read(stream)?;
        while let Some(plain) = self.open()? {
            take(&self.bytes[plain]);
        }
        Ok(got > 0)
    }

    /// Reads once behind what has come: the bytes that came, and for how many there was room.
    fn read(&mut self, stream: &ProcessFd) -> Result<(usize, usize), Errno> {
        if let Some(failed) = self.failed.take() {
            return Err(failed);
        }
        let from = if self.plain.is_empty() {
            self.begin
        } else {
            self.plain.start
        };
        self.bytes.copy_within(from..self.end, 0);
        self.plain = match self.plain.is_empty() {
            true => 0..0,
            false => 0..self.plain.end - from,
        };
        (self.begin, self.end) = (self.begin - from, self.end - from);
        let wanted = self.total().map_or(LEAST, |total| self.begin + total);
        if self.bytes.len() < wanted {
            self.bytes.resize(if wanted <= LEAST { LEAST } else { MOST }, 0);
        }
        let space = self.bytes.len() - self.end;
        let got = socket::receive_bytes(stream, &mut self.bytes[self.end..])?;
        self.end += got;
        if got == space && self.bytes.len() < MOST {
            self.bytes.resize(MOST, 0); // there is more where this came from
        }
        Ok((got, space))
    }

    /// Opens the next record, if all of it is here: where its body lies.
    fn open(&mut self) -> Result<Option<Range<usize>>, Errno> {
        let opened = match self.total() {
            _ if self.is_broken => None,
            None => None,
            Some(total) if total > self.sealed() => return Ok(None),
            Some(total) => {
                let record = self.begin + HEAD..self.begin + total;
                self.begin += total;
                let body = record.start..record.end - TAG;
                self.code.open(&mut self.bytes[record]).map(|()| body)
            }
        };
        self.is_broken = opened.is_none();
        opened.map(Some).ok_or(Errno::BADMSG)
    }

    /// Bytes of the record that is to be opened next, as far as it is known; `None` when there can be no such record.
    fn total(&self) -> Option<usize> {
        let Some(head) = self.bytes[self.begin..self.end].first_chunk::<HEAD>() else {
            return Some(HEAD + 1 + TAG);
        };
        let len = self.code.len(u32::from_le_bytes(*head))?;
        (1..=MAX_BODY).contains(&len).then_some(HEAD + len + TAG)
    }

    fn sealed(&self) -> usize {
        self.end - self.begin
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guard(..)")
    }
}

/// What makes the tags of one direction, and verifies them.
#[expect(
    clippy::large_enum_variant,
    reason = "guards are boxed, and there are as many as connections"
)]
enum Code {
    Aead(Key),
    /// CRC32C of the record's number, the body's length and the body; the rest of the tag is zero. The upper bits of the length
    /// are its check, so that nobody waits for the rest of a record because that was spoiled.
    Check {
        /// Records so far.
        records: u64,
    },
}

impl Code {
    /// The head of a record with a body of `len` bytes.
    fn head(&self, len: usize) -> u32 {
        match self {
            Code::Aead(_) => len as u32,
            Code::Check { .. } => check_of(len as u32) | len as u32,
        }
    }

    /// The length that a head says; `None` for one that was spoiled.
    fn len(&self, head: u32) -> Option<usize> {
        let len = match self {
            Code::Aead(_) => head,
            Code::Check { .. } => head & LENGTH,
        };
        (head == self.head(len as usize)).then_some(len as usize)
    }

    /// The tag of the next record, whose body is encrypted where it lies, if it is.
    fn seal(&mut self, body: &mut [u8]) -> Option<[u8; TAG]> {
        match self {
            Code::Aead(key) => key.seal(body)?.as_ref().try_into().ok(),
            Code::Check { records } => Some(checksum(records, body)),
        }
    }

    /// Verifies the next record, a body and its tag, and decrypts the body where it lies.
    fn open(&mut self, record: &mut [u8]) -> Option<()> {
        match self {
            Code::Aead(key) => key.open(record),
            Code::Check { records } => {
                let (body, tag) = record.split_at(record.len().checked_sub(TAG)?);
                (tag == checksum(records, body)).then_some(())
            }
        }
    }

    #[cfg(test)]
    fn twin(&self) -> Code {
        match self {
            Code::Aead(key) => Code::Aead(Key {
                key: key.key.clone(),
                ..*key
            }),
            Code::Check { records } => Code::Check { records: *records },
        }
    }
}

/// The upper bits of a head with a checked length.
fn check_of(len: u32) -> u32 {
    crc32c::crc32c(&len.to_le_bytes()) & !LENGTH
}

/// The tag of the next record after so many.
fn checksum(records: &mut u64, body: &[u8]) -> [u8; TAG] {
    let about = [*records, body.len() as u64].map(u64::to_le_bytes);
    *records = records.wrapping_add(1);
    let sum = crc32c::crc32c_append(crc32c::crc32c(about.as_flattened()), body);
    let mut tag = [0; TAG];
    tag[..4].copy_from_slice(&sum.to_le_bytes());
    tag
}

/// The key of one direction.
struct Key {
    key: LessSafeKey,
    cipher: Cipher,
    encrypts: bool,
    /// Records so far: the next nonce, which is never used twice.
    records: u64,
}

impl Key {
    fn new(cipher: Cipher, encrypts: bool, key: &[u8; Secret::LEN]) -> Option<Key> {
        Some(Key {
            key: LessSafeKey::new(UnboundKey::new(cipher.algorithm(), key).ok()?),
            cipher,
            encrypts,
            records: 0,
        })
    }

    /// The tag of the next record, whose body is encrypted where it lies, if it is.
    fn seal(&mut self, body: &mut [u8]) -> Option<aead::Tag> {
        let nonce = self.next()?;
        let tag = match self.encrypts {
            true => self.key.seal_in_place_separate_tag(nonce, Aad::empty(), body),
            false => self
                .key
                .seal_in_place_separate_tag(nonce, Aad::from(&*body), &mut []),
        };
        tag.ok()
    }

    /// Verifies the next record, a body and its tag, and decrypts the body where it lies.
    fn open(&mut self, record: &mut [u8]) -> Option<()> {
        let nonce = self.next()?;
        match self.encrypts {
            true => self.key.open_in_place(nonce, Aad::empty(), record).ok()?,
            false => {
                let (body, tag) = record.split_at_mut(record.len().checked_sub(TAG)?);
                self.key.open_in_place(nonce, Aad::from(&*body), tag).ok()?
            }
        };
        Some(())
    }

    /// The nonce of the next record; now and then after a new key, so that no key sees more bytes than is good for AES-GCM.
    fn next(&mut self) -> Option<Nonce> {
        if self.records > 0 && self.records.is_multiple_of(RECORDS_PER_KEY) {
            self.renew()?;
        }
        let nonce = self.nonce(self.records);
        self.records = self.records.checked_add(1).filter(|&next| next < u64::MAX)?;
        Some(nonce)
    }

    /// Goes on with the key that follows from this one.
    ///
    /// Source: The Noise Protocol Framework, revision 34, section 4.2 (`REKEY`).
    fn renew(&mut self) -> Option<()> {
        let mut next = Zeroizing::new([0; Secret::LEN]);
        let nonce = self.nonce(u64::MAX);
        let _tag = self
            .key
            .seal_in_place_separate_tag(nonce, Aad::empty(), &mut *next)
            .ok()?;
        self.key = LessSafeKey::new(UnboundKey::new(self.cipher.algorithm(), &*next).ok()?);
        Some(())
    }

    /// As Noise writes it, section 12: 32 bits of zeros and the number, in the order of bytes that the cipher has.
    fn nonce(&self, number: u64) -> Nonce {
        let mut nonce = [0; aead::NONCE_LEN];
        nonce[4..].copy_from_slice(&match self.cipher {
            Cipher::Aes => number.to_be_bytes(),
            Cipher::ChaCha => number.to_le_bytes(),
        });
        Nonce::assume_unique_for_key(nonce)
    }
}

const HEAD: usize = 4;
/// The bits of a checked head that are the length.
const LENGTH: u32 = (1 << 17) - 1;
const _: () = assert!(MAX_BODY <= LENGTH as usize);
const TAG: usize = 16;
/// Bytes of a record, at most.
const RECORD: usize = HEAD + MAX_BODY + TAG;
/// 64 KiB and the head of a message, so that long ones take no record for a few bytes.
const MAX_BODY: usize = (64 << 10) + 64;
/// Room for what comes: as long as little does, and else.
const LEAST: usize = 4096;
const MOST: usize = 2 * RECORD;
/// Records of a key: 64 GiB at most.
const RECORDS_PER_KEY: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::{
        os::fd::OwnedFd,
        thread,
        time::{Duration, Instant},
    };

    const KEYED: [Protection; 2] = [Protection::Authenticate, Protection::Encrypt];
    const ALL: [Protection; 3] = [KEYED[0], KEYED[1], Protection::Check];
    const CIPHERS: [Cipher; 2] = [Cipher::Aes, Cipher::ChaCha];

    fn ends(protection: Protection, cipher: Cipher) -> (Sealer, Opener) {
        let near = Guard::new(protection, cipher, &[1; 32], &[2; 32]).unwrap();
        let far = Guard::new(protection, cipher, &[2; 32], &[1; 32]).unwrap();
        (near.sealer, far.opener)
    }

    fn sockets() -> (ProcessFd, ProcessFd) {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let ours = |stream: std::os::unix::net::UnixStream| {
            stream.set_nonblocking(true).unwrap();
            ProcessFd::adopt(OwnedFd::from(stream))
        };
        (ours(near), ours(far))
    }

    /// The records of these bodies, and where each ends.
    fn records(sealer: &mut Sealer, bodies: &[Vec<u8>]) -> (Vec<u8>, Vec<usize>) {
        let (mut wire, mut ends) = (Vec::new(), Vec::new());
        for body in bodies {
            assert_eq!(sealer.seal([&body[..]].into_iter()), Ok(body.len()));
            wire.extend_from_slice(&sealer.sealed);
            ends.push(wire.len());
        }
        sealer.gone = sealer.sealed.len();
        (wire, ends)
    }

    /// What an opener makes of these bytes, which come in pieces of at most `piece`, by reads of at most `room`.
    fn opened(opener: &mut Opener, wire: &[u8], piece: usize, room: usize) -> (Vec<u8>, Errno) {
        let (near, far) = sockets();
        let (mut got, mut buffer) = (Vec::new(), vec![0; room]);
        let (first, second) = buffer.split_at_mut(room / 3);
        let mut receive = |got: &mut Vec<u8>| {
            loop {
                match opener.receive(&far, first, second) {
                    Ok(0) => return Errno::PIPE,
                    Ok(n) => {
                        let taken = first.iter().chain(&*second).take(n);
                        got.extend(taken);
                        assert!(n == room || !opener.has_more());
                    }
                    Err(e) => return e,
                }
            }
        };
        for part in wire.chunks(piece) {
            let mut part = part;
            while !part.is_empty() {
                part = &part[tcp::send(&near, &[IoSlice::new(part)]).unwrap_or(0)..];
                match receive(&mut got) {
                    Errno::AGAIN => (),
                    end => return (got, end),
                }
            }
        }
        drop(near);
        let end = receive(&mut got);
        (got, end)
    }

    fn bodies() -> impl Strategy<Value = Vec<Vec<u8>>> {
        let len = prop_oneof![4 => 1usize..100, 1 => 1usize..6000, 1 => Just(MAX_BODY)];
        let body = (len, any::<u8>()).prop_map(|(len, first)| {
            let byte = |i: usize| first.wrapping_add((i * 7 + i / 256) as u8);
            (0..len).map(byte).collect()
        });
        prop::collection::vec(body, 1..6)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn bytes_arrive_however_they_are_cut(
            bodies in bodies(),
            piece in prop_oneof![1usize..70, Just(5000), Just(1 << 20)],
            room in prop_oneof![1usize..50, Just(4096), Just(300_000)],
            which in 0usize..5,
        ) {
            let (mut sealer, mut opener) = ends(ALL[which / 2], CIPHERS[which % 2]);
            let (wire, _) = records(&mut sealer, &bodies);
            let all = bodies.concat();
            // A byte at a time, of a long record, takes too long.
            let piece = piece.max(all.len() / 500);
            let (got, end) = opened(&mut opener, &wire, piece, room.max(all.len() / 500));
            prop_assert!(got == all && end == Errno::PIPE, "{} of {} bytes, {end}", got.len(), all.len());
        }

        #[test]
        fn nothing_comes_of_a_record_that_was_altered_nor_after_it(
            bodies in bodies(),
            which in 0usize..5,
            at: prop::sample::Index,
            flip in 1u8..,
        ) {
            let (mut sealer, mut opener) = ends(ALL[which / 2], CIPHERS[which % 2]);
            let (mut wire, ends) = records(&mut sealer, &bodies);
            let at = at.index(wire.len());
            wire[at] ^= flip;
            let good = ends.iter().take_while(|&&end| end <= at).count();
            let (got, end) = opened(&mut opener, &wire, 1 << 20, 1000);
            prop_assert!(bodies[..good].concat().starts_with(&got));
            // A length that says more is awaited in vain, unless it is checked.
            let may_wait = ALL[which / 2] != Protection::Check;
            prop_assert!(end == Errno::BADMSG || may_wait && end == Errno::PIPE, "{end}");
            let (record, is_head) = (ends[good], at < ends[good] - bodies[good].len() - TAG);
            prop_assert!(is_head || end == Errno::BADMSG, "byte {at} of the record that ends at {record}");
        }

        #[test]
        fn what_is_cut_short_is_not_taken(bodies in bodies(), which in 0usize..5, at: prop::sample::Index) {
            let (mut sealer, mut opener) = ends(ALL[which / 2], CIPHERS[which % 2]);
            let (wire, ends) = records(&mut sealer, &bodies);
            let at = at.index(wire.len());
            let whole = ends.iter().take_while(|&&end| end <= at).count();
            let (got, end) = opened(&mut opener, &wire[..at], 1 << 20, 4096);
            prop_assert!(got == bodies[..whole].concat() && end == Errno::PIPE);
        }

        #[test]
        fn any_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let (_, mut opener) = ends(Protection::Encrypt, Cipher::Aes);
            prop_assert!(opened(&mut opener, &bytes, 100, 100).0.is_empty());
        }
    }

    #[test]
    fn records_that_are_repeated_left_out_or_in_another_order_are_refused() {
        for (protection, cipher) in ALL.into_iter().flat_map(|p| CIPHERS.map(|c| (p, c))) {
            let bodies: Vec<Vec<u8>> = (0..3).map(|i| vec![i; 40]).collect();
            let len = HEAD + 40 + TAG;
            for (order, good) in [
                (&[0usize, 0, 1][..], 1),
                (&[0, 2], 1),
                (&[1, 0], 0),
                (&[0, 1, 2, 0], 3),
            ] {
                let (mut sealer, mut opener) = ends(protection, cipher);
                let (wire, _) = records(&mut sealer, &bodies);
                let played: Vec<u8> = order
                    .iter()
                    .flat_map(|&i| &wire[i * len..][..len])
                    .copied()
                    .collect();
                let (got, end) = opened(&mut opener, &played, 1 << 20, 4096);
                assert_eq!(end, Errno::BADMSG, "{order:?}");
                assert!(bodies[..good].concat().starts_with(&got), "{order:?}");
                // It stays so.
                assert_eq!(opened(&mut opener, &wire, 1 << 20, 4096).1, Errno::BADMSG);
            }
            if protection == Protection::Check {
                continue;
            }
            // What went one way is nothing for the other, nor for another mode.
            let near = Guard::new(protection, cipher, &[1; 32], &[2; 32]).unwrap();
            let (mut sealer, mut back) = (near.sealer, near.opener);
            let (wire, _) = records(&mut sealer, &bodies);
            assert_eq!(opened(&mut back, &wire, 1 << 20, 4096), (vec![], Errno::BADMSG));
        }
    }

    #[test]
    fn only_encryption_hides_the_bytes() {
        for (protection, cipher) in ALL.into_iter().flat_map(|p| CIPHERS.map(|c| (p, c))) {
            let body = b"the bytes of a vector".to_vec();
            let (wire, _) = records(&mut ends(protection, cipher).0, std::slice::from_ref(&body));
            let is_plain = wire.windows(body.len()).any(|part| part == body);
            assert_eq!(is_plain, protection != Protection::Encrypt);
        }
    }

    #[test]
    fn keys_change_on_both_sides_alike() {
        for cipher in CIPHERS {
            let (mut sealer, mut opener) = ends(Protection::Encrypt, cipher);
            let go_to = |code: &mut Code, to| match code {
                Code::Aead(key) => key.records = to,
                Code::Check { .. } => unreachable!("it has a key"),
            };
            go_to(&mut sealer.code, RECORDS_PER_KEY - 1);
            go_to(&mut opener.code, RECORDS_PER_KEY - 1);
            let bodies = vec![vec![7; 100]; 3];
            let (wire, _) = records(&mut sealer, &bodies);
            assert_eq!(
                opened(&mut opener, &wire, 1 << 20, 4096),
                (bodies.concat(), Errno::PIPE)
            );
            // With the first key nothing of the second could be opened.
            let (_, mut opener) = ends(Protection::Encrypt, cipher);
            go_to(&mut opener.code, RECORDS_PER_KEY + 1);
            assert_eq!(
                opened(&mut opener, &wire[120 * 2..], 1 << 20, 4096).1,
                Errno::BADMSG
            );
        }
    }

    #[test]
    fn a_sender_takes_no_more_than_goes() {
        let (near, far) = sockets();
        let (mut sealer, mut opener) = ends(Protection::Encrypt, Cipher::Aes);
        let body: Vec<u8> = (0..3_000_000u32)
            .map(|i| (i.wrapping_mul(i) >> 3) as u8)
            .collect();
        let (mut sent, mut waited, mut got) = (0, false, Vec::new());
        let (mut buffer, until) = (vec![0; 10_000], Instant::now() + Duration::from_secs(60));
        while got.len() < body.len() {
            assert!(Instant::now() < until, "in vain");
            while sent < body.len() || sealer.is_pending() {
                let (a, b) = body[sent..].split_at((body.len() - sent).min(777));
                let gone = match sent == body.len() {
                    true => sealer.flush(&near).map(|()| 0),
                    false => sealer.send(&near, &[IoSlice::new(a), IoSlice::new(b)]),
                };
                match gone {
                    Ok(n) => sent += n,
                    Err(e) => {
                        assert_eq!(e, Errno::AGAIN);
                        waited = true;
                        break;
                    }
                }
            }
            match opener.receive(&far, &mut buffer, &mut []) {
                Ok(n) => got.extend_from_slice(&buffer[..n]),
                Err(Errno::AGAIN) => thread::yield_now(),
                Err(e) => panic!("{e}"),
            }
        }
        assert!(got == body && waited);
    }
}
