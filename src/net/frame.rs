//! Frames: messages with a length, and descriptors beside them, over a stream.
//!
//! On the wire: the body's length (4 bytes, little-endian), the number of descriptors (1 byte), the body. Both are
//! checked before they are used. Descriptors travel with the frame's first byte, so they are here by the time the
//! frame is complete; frames take them in order.

use super::{ALTERED, Connection, Guard, Parcel};
use crate::sys::{fork::ProcessFd, socket};
use rustix::io::Errno;
use serde::{Serialize, de::DeserializeOwned};
use smallvec::SmallVec;
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd},
    sync::Arc,
};

/// The longest body, in bytes.
pub(crate) const MAX_FRAME: usize = 4 << 20;

/// A message as it came.
#[derive(Debug, Default)]
pub(crate) struct Frame {
    pub(crate) body: Vec<u8>,
    pub(crate) fds: Vec<ProcessFd>,
    /// What protects the connection among them, where one was put there by its receiver.
    pub(crate) guard: Option<Box<Guard>>,
}

impl Frame {
    /// The message in the body; it must fill the body exactly, and no descriptors may be beside it.
    pub(crate) fn message<M: DeserializeOwned>(&self) -> Result<M, FrameError> {
        if !self.fds.is_empty() {
            return Err(FrameError::Malformed);
        }
        match postcard::take_from_bytes(&self.body) {
            Ok((message, [])) => Ok(message),
            _ => Err(FrameError::Malformed),
        }
    }

    /// The frame as a parcel, whose descriptors then belong to the receiver.
    pub(crate) fn into_parcel(self) -> Result<Parcel, FrameError> {
        if self.body.len() > Parcel::MAX_BYTES {
            return Err(FrameError::TooLong(self.body.len()));
        }
        Ok(Parcel {
            bytes: self.body,
            fds: socket::release(self.fds),
            guard: self.guard,
        })
    }
}

/// Why a stream of frames ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("the other side closed the connection")]
    Closed,
    #[error("a message of {0} bytes is too long")]
    TooLong(usize),
    #[error("a message that makes no sense")]
    Malformed,
    #[error("{ALTERED}")]
    Altered,
    #[error("its descriptors could not be taken: too many came, or too many files are open (see ulimit -n)")]
    TooManyFds,
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A message ready to be sent, once or to many.
#[derive(Debug, Clone)]
pub(crate) struct Packed {
    bytes: Arc<[u8]>,
    fds: Arc<[ProcessFd]>,
}

impl Packed {
    /// A serialised message.
    pub(crate) fn message(message: &impl Serialize) -> Result<Packed, FrameError> {
        let body = postcard::to_stdvec(message).map_err(|_| FrameError::Malformed)?;
        Packed::new(&body, Vec::new())
    }

    /// A parcel.
    pub(crate) fn parcel(parcel: Parcel) -> Result<Packed, FrameError> {
        if parcel.bytes.len() > Parcel::MAX_BYTES {
            return Err(FrameError::TooLong(parcel.bytes.len()));
        }
        Packed::new(
            &parcel.bytes,
            parcel.fds.into_iter().map(ProcessFd::adopt).collect(),
        )
    }

    fn new(body: &[u8], fds: Vec<ProcessFd>) -> Result<Packed, FrameError> {
        if body.len() > MAX_FRAME {
            return Err(FrameError::TooLong(body.len()));
        }
        if fds.len() > Parcel::MAX_FDS {
            return Err(FrameError::TooManyFds);
        }
        let mut bytes = Vec::with_capacity(HEAD + body.len());
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.push(fds.len() as u8);
        bytes.extend_from_slice(body);
        Ok(Packed {
            bytes: bytes.into(),
            fds: fds.into(),
        })
    }
}

/// A connection on which both sides have proved themselves. Nothing here blocks.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: ProcessFd,
    guard: Option<Box<Guard>>,
    inbox: Inbox,
    /// What is still to be sent, with the bytes of the first that have gone.
    outbox: VecDeque<Packed>,
    gone: usize,
}

impl Channel {
    pub(crate) fn new(Connection { fd, guard }: Connection) -> Self {
        Channel {
            stream: fd,
            guard,
            inbox: Inbox::default(),
            outbox: VecDeque::new(),
            gone: 0,
        }
    }

    /// The connection itself, for another protocol; `None` if frames are under way on it.
    pub(crate) fn into_connection(self) -> Option<Connection> {
        let idle = self.outbox.is_empty() && self.inbox.bytes.is_empty() && self.inbox.fds.is_empty();
        let idle = idle && self.guard.as_ref().is_none_or(|guard| guard.is_idle());
        idle.then_some(Connection {
            fd: self.stream,
            guard: self.guard,
        })
    }

    /// Adds a message to what is to be sent; [`Channel::flush`] sends it.
    pub(crate) fn post(&mut self, packed: Packed) {
        self.outbox.push_back(packed);
    }

    /// Whether something is still to be sent.
    pub(crate) fn unsent(&self) -> bool {
        !self.outbox.is_empty() || self.guard.as_ref().is_some_and(|guard| guard.sealer.is_pending())
    }

    /// Sends what goes without waiting.
    pub(crate) fn flush(&mut self) -> Result<(), FrameError> {
        while self.unsent() {
            match self.send_some() {
                Ok(n) => self.sent(n),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => (),
                Err(Errno::PIPE | Errno::CONNRESET) => return Err(FrameError::Closed),
                Err(e) => return Err(FrameError::Io(e.into())),
            }
        }
        Ok(())
    }

    /// One call's worth: from where we are to the next message that has descriptors of its own.
    fn send_some(&mut self) -> Result<usize, Errno> {
        let mut messages = self.outbox.iter();
        let Some(first) = messages.next() else {
            let guard = self.guard.as_mut();
            return guard
                .map_or(Ok(()), |guard| guard.sealer.flush(&self.stream))
                .map(|()| 0);
        };
        let fds: SmallVec<[BorrowedFd<'_>; Parcel::MAX_FDS]> = match self.gone {
            0 => first.fds.iter().map(AsFd::as_fd).collect(),
            _ => SmallVec::new(),
        };
        let rest = messages.take_while(|p| p.fds.is_empty()).map(|p| &p.bytes[..]);
        let bytes = std::iter::once(&first.bytes[self.gone..]).chain(rest);
        let bytes: SmallVec<[IoSlice<'_>; BATCH]> = bytes.take(BATCH).map(IoSlice::new).collect();
        match &mut self.guard {
            None => socket::send(&self.stream, &bytes, &fds),
            Some(guard) => guard.sealer.send(&self.stream, &bytes), // descriptors do not go by TCP
        }
    }

    /// Takes `n` sent bytes off what is to be sent.
    fn sent(&mut self, n: usize) {
        self.gone += n;
        while let Some(first) = self.outbox.front() {
            if self.gone < first.bytes.len() {
                break;
            }
            self.gone -= first.bytes.len();
            self.outbox.pop_front();
        }
    }

    /// Reads once what has come; [`Channel::next`] gives the frames. False when nothing had.
    pub(crate) fn fill(&mut self) -> Result<bool, FrameError> {
        let Inbox { bytes, fds } = &mut self.inbox;
        let more = match &mut self.guard {
            None => {
                let mut chunk = [0; 16 << 10];
                socket::receive(&self.stream, &mut chunk, fds).map(|n| {
                    bytes.extend_from_slice(&chunk[..n]);
                    n > 0
                })
            }
            Some(guard) => (guard.opener).fill(&self.stream, |plain| bytes.extend_from_slice(plain)),
        };
        match more {
            Ok(false) => Err(FrameError::Closed),
            Ok(true) => Ok(true),
            Err(Errno::BADMSG) => Err(FrameError::Altered),
            Err(Errno::AGAIN | Errno::INTR) => Ok(false),
            Err(Errno::CONNRESET) => Err(FrameError::Closed),
            Err(Errno::TOOBIG) => Err(FrameError::TooManyFds),
            Err(e) => Err(FrameError::Io(e.into())),
        }
    }

    /// The next complete frame. To be asked until there is none after each [`Channel::fill`], which keeps what waits
    /// here below one frame and one read.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        self.inbox.next()
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

/// What has come and is not yet taken.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    pub(super) bytes: Vec<u8>,
    fds: Vec<ProcessFd>,
}

impl Inbox {
    pub(super) fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(&[a, b, c, d, fds]) = self.bytes.first_chunk::<HEAD>() else {
            return self.incomplete();
        };
        let (len, fds) = (u32::from_le_bytes([a, b, c, d]) as usize, usize::from(fds));
        if len > MAX_FRAME {
            return Err(FrameError::TooLong(len));
        }
        if fds > Parcel::MAX_FDS {
            return Err(FrameError::TooManyFds);
        }
        if self.bytes.len() < HEAD + len {
            return self.incomplete();
        }
        if self.fds.len() < fds {
            return Err(FrameError::Malformed);
        }
        let body = self.bytes[HEAD..HEAD + len].to_vec();
        self.bytes.drain(..HEAD + len);
        Ok(Some(Frame {
            body,
            fds: self.fds.drain(..fds).collect(),
            guard: None,
        }))
    }

    /// Descriptors may wait only for the one frame that has begun.
    fn incomplete(&self) -> Result<Option<Frame>, FrameError> {
        let room = if self.bytes.is_empty() { 0 } else { Parcel::MAX_FDS };
        if self.fds.len() > room {
            return Err(FrameError::TooManyFds);
        }
        Ok(None)
    }
}

const HEAD: usize = 5;
/// Messages sent in one call, at most.
const BATCH: usize = 32;

const _: () = assert!(Parcel::MAX_FDS <= socket::MAX_FDS);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Address;
    use proptest::prelude::*;
    use rustix::pipe::pipe;
    use std::os::fd::OwnedFd;

    fn pair() -> (Channel, Channel) {
        let (address, listener) = Address::listen().unwrap();
        let near = address.dial(None).unwrap();
        let far = socket::accept(&listener).unwrap().unwrap();
        let plain = |fd| Channel::new(Connection { fd, guard: None });
        (plain(near), plain(far))
    }

    fn raw(head: [u8; HEAD], body: &[u8]) -> Inbox {
        Inbox {
            bytes: [&head, body].concat(),
            fds: Vec::new(),
        }
    }

    #[test]
    fn messages_arrive_in_order_whatever_their_size() {
        let (mut near, mut far) = pair();
        let sizes = [0, 1, 5, 16 << 10, 300_000, 3];
        for (i, &size) in sizes.iter().enumerate() {
            near.post(Packed::message(&(i as u32, vec![i as u8; size])).unwrap());
        }
        let mut came: Vec<(u32, Vec<u8>)> = Vec::new();
        while came.len() < sizes.len() {
            near.flush().unwrap();
            far.fill().unwrap();
            while let Some(frame) = far.next().unwrap() {
                came.push(frame.message().unwrap());
            }
        }
        assert!(!near.unsent());
        for (i, &size) in sizes.iter().enumerate() {
            assert_eq!(came[i], (i as u32, vec![i as u8; size]));
        }
        drop(near);
        assert!(matches!(far.fill(), Err(FrameError::Closed)));
    }

    #[test]
    fn parcels_keep_their_descriptors() {
        let (mut near, mut far) = pair();
        let pipes: Vec<(OwnedFd, OwnedFd)> = (0..3).map(|_| pipe().unwrap()).collect();
        let (readers, writers): (Vec<_>, Vec<_>) = pipes.into_iter().unzip();
        let mut writers = writers.into_iter();
        for count in [2, 0, 1] {
            let fds = writers.by_ref().take(count).collect();
            near.post(
                Packed::parcel(Parcel {
                    bytes: vec![count as u8; 9],
                    fds,
                    guard: None,
                })
                .unwrap(),
            );
        }
        near.flush().unwrap();
        let mut came = Vec::new();
        while came.len() < 3 {
            far.fill().unwrap();
            while let Some(frame) = far.next().unwrap() {
                came.push(frame.into_parcel().unwrap());
            }
        }
        let counts: Vec<usize> = came.iter().map(|p| p.fds.len()).collect();
        assert_eq!(counts, [2, 0, 1]);
        for (reader, fd) in readers.iter().zip(came.iter().flat_map(|p| &p.fds)) {
            rustix::io::write(fd, b"x").unwrap();
            assert_eq!(rustix::io::read(reader, &mut [0; 2]), Ok(1));
        }
    }

    #[test]
    fn bounds_hold_on_both_sides() {
        let over = (MAX_FRAME as u32 + 1).to_le_bytes();
        let [a, b, c, d] = over;
        assert!(matches!(
            raw([a, b, c, d, 0], &[]).next(),
            Err(FrameError::TooLong(_))
        ));
        assert!(matches!(
            raw([255; HEAD], &[]).next(),
            Err(FrameError::TooLong(_))
        ));
        assert!(matches!(
            raw([0, 0, 0, 0, 5], &[]).next(),
            Err(FrameError::TooManyFds)
        ));
        // One descriptor announced, none came.
        assert!(matches!(
            raw([0, 0, 0, 0, 1], &[]).next(),
            Err(FrameError::Malformed)
        ));
        assert!(matches!(
            Packed::message(&vec![0u8; MAX_FRAME]),
            Err(FrameError::TooLong(_))
        ));
        let long = Parcel {
            bytes: vec![0; Parcel::MAX_BYTES + 1],
            ..Parcel::default()
        };
        assert!(matches!(Packed::parcel(long), Err(FrameError::TooLong(_))));
        let many = Parcel {
            bytes: Vec::new(),
            fds: (0..=Parcel::MAX_FDS).map(|_| pipe().unwrap().0).collect(),
            guard: None,
        };
        assert!(matches!(Packed::parcel(many), Err(FrameError::TooManyFds)));
    }

    #[test]
    fn descriptors_that_nobody_announced_are_refused() {
        let mut inbox = raw([0; HEAD], &[]);
        inbox.fds.push(ProcessFd::adopt(pipe().unwrap().0));
        assert!(inbox.next().unwrap().is_some());
        assert!(matches!(inbox.next(), Err(FrameError::TooManyFds)));
    }

    proptest! {
        #[test]
        fn any_bytes_give_frames_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            let mut inbox = Inbox { bytes, fds: Vec::new() };
            while let Ok(Some(frame)) = inbox.next() {
                prop_assert!(frame.body.len() <= 400 && frame.fds.is_empty());
                let _ = frame.message::<Vec<(u32, String)>>();
            }
        }
    }
}
