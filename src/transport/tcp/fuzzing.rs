//! Targets of this transport: see [`crate::fuzzing`].

use super::{
    Hub,
    frame::{Head, heard, hello},
    inbound::{Arrival, Inbound},
};
use crate::{fuzzing::part, net::Parcel, transport::LANES};
use std::{
    io::Write,
    os::{fd::OwnedFd, unix::net::UnixStream},
    sync::Arc,
};

/// What a peer sends over a connection, in pieces, of which messages are made and released; and what it says when it hands the
/// connection over.
pub(crate) fn stream(bytes: &[u8]) {
    if let Some((index, count)) = heard(bytes) {
        assert_eq!(hello(index, count), bytes);
    }
    if let Some(head) = bytes.first_chunk().and_then(Head::decode) {
        assert_eq!(Some(&head.encode()), bytes.first_chunk());
    }
    let (near, mut far) = UnixStream::pair().expect("a pair of sockets");
    near.set_nonblocking(true).expect("a socket that does not block");
    let parcel = Parcel {
        guard: None,
        bytes: hello(0, 1),
        fds: vec![OwnedFd::from(near)],
    };
    let hub = Arc::new(Hub::new().expect("an epoll instance"));
    let arrival = Arrival::of(1, parcel).expect("a hello of ours");
    let inbound = Inbound::new(1, vec![arrival], &hub).expect("a receiving half");
    let mut rest = bytes;
    while let Some((piece, after)) = part(rest) {
        rest = after;
        if !inbound.is_open() {
            return;
        }
        far.write_all(piece).expect("room for a piece");
        if inbound.progress(0, None).is_err() {
            return; // it is broken, and nothing of it is used any more
        }
        for lane in 0..LANES {
            if let Some(message) = inbound.peek(lane) {
                let body = message.body.here().expect("it has come");
                let mut copy = vec![0u8; body.len()];
                crate::mem::Region::of_mut(&mut copy).copy_from(&body);
                inbound.release(lane);
            }
        }
    }
}
