//! Targets of this transport: see [`crate::fuzzing`].

use super::{
    Bell, Inbound, Lease, Link, Mapping, Opening, Ways,
    layout::{MAX_MESSAGE, SHALLOW, flag},
};
use crate::{
    fuzzing::part,
    mem::Region,
    net::Parcel,
    transport::{Body, LANES, Link as _},
};
use std::{
    cell::Cell,
    sync::{Arc, atomic::Ordering::*},
};

const WAYS: Ways = Ways {
    attach: false,
    direct: false,
    link: [1, 0, 1],
};

/// A direction of a link, both ends of which are here.
struct Ends {
    sends: Link,
    receives: Link,
    /// Messages that were written into each lane.
    written: [Cell<u32>; LANES],
}

impl Ends {
    fn new() -> Ends {
        let [ours, theirs] = [(); 2].map(|()| Bell::new().expect("a bell"));
        let (opening, parcel) = Opening::new(&ours, WAYS, SHALLOW).expect("a segment");
        let inbound = Inbound::attach(0, &parcel, &theirs, WAYS).expect("a segment of ours");
        let welcome = theirs.welcome().expect("a welcome");
        let lease: Arc<Lease> = Arc::default();
        let outbound = opening
            .connected(1, &welcome, &ours, &lease)
            .expect("a welcome of ours");
        let (sends, receives) = (Link::default(), Link::default());
        assert!(sends.set_outbound(outbound) && receives.set_inbound(inbound));
        Ends {
            sends,
            receives,
            written: Default::default(),
        }
    }

    /// Writes an entry as a peer might, and reads it as a rank does.
    fn write(&self, lane: usize, word: u32, body: &[u8]) {
        let number = self.written[lane].get();
        let segment = &self.sends.outbound().segment;
        let entry = segment.entry(lane, number, SHALLOW);
        let words = body.chunks(4).map(|bytes| {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            u32::from_le_bytes(word)
        });
        for (to, word) in entry.body().iter().zip(words) {
            to.store(word, Relaxed);
        }
        entry.len.store(word, Relaxed);
        entry.flag.store(flag(number), Release);
        let mut target = vec![0u8; word as usize & (MAX_MESSAGE - 1)];
        let _ = self.receives.expect(lane, &[0; 4], target.len());
        let _ = self.receives.pin(lane, target.len());
        let _ = self.receives.take(lane, &Region::of_mut(&mut target));
        // What is refused ends the link; here the next one may come.
        if let Ok(Some(message)) = self.receives.peek(lane) {
            if let Body::Here(body) = message.body {
                let mut copy = vec![0u8; body.len()];
                Region::of_mut(&mut copy).copy_from(&body);
            }
            self.receives.release(lane);
            self.written[lane].set(number.wrapping_add(1));
        }
    }
}

/// What a peer writes into the segment: entries on one side, counts on the other.
pub(crate) fn segment(bytes: &[u8]) {
    thread_local!(static ENDS: Ends = Ends::new());
    ENDS.with(|ends| {
        let mut rest = bytes;
        while let Some((&[lane, a, b, c, d], after)) = rest.split_first_chunk() {
            let (body, after) = part(after).unwrap_or_default();
            rest = after;
            let word = u32::from_le_bytes([a, b, c, d]);
            ends.write(usize::from(lane) % LANES, word, body);
        }
    });
}

/// Descriptors of the right kind, and beside them whatever somebody says; and counts that a receiver never had.
pub(crate) fn parcel(bytes: &[u8]) {
    let bell = Bell::new().expect("a bell");
    let (opening, mut parcel) = Opening::new(&bell, WAYS, SHALLOW).expect("a segment");
    let Some((&kind, said)) = bytes.split_first() else {
        return;
    };
    match kind % 4 {
        0 => parcel.bytes = said.to_vec(),
        // As ours, but for some bytes.
        1 => parcel
            .bytes
            .iter_mut()
            .zip(said)
            .for_each(|(to, byte)| *to ^= byte),
        2 => parcel.bytes.extend(said),
        _ => {
            let mut bytes = Mapping::HELLO.to_vec();
            bytes.extend(said);
            parcel.bytes = bytes;
            let fds = parcel.fds.split_off(2);
            let _ = Mapping::of(
                0,
                &Parcel {
                    guard: None,
                    bytes: parcel.bytes,
                    fds,
                },
            );
            return;
        }
    }
    if kind & 4 != 0 {
        parcel.fds.swap(0, usize::from(kind >> 3) % 3);
    }
    let _ = Inbound::attach(0, &parcel, &bell, WAYS);
    let _ = Mapping::of(0, &parcel);
    // As a welcome.
    let Ok(outbound) = opening.connected(1, &parcel, &bell, &Arc::default()) else {
        return;
    };
    let mut said = said;
    while let Some((&[lane, a, b, c, d], after)) = said.split_first_chunk() {
        said = after;
        let count = u32::from_le_bytes([a, b, c, d]);
        let lane = usize::from(lane) % LANES;
        outbound.segment.released.0[lane].store(count, Release);
        match outbound.reserve(lane, 100) {
            Ok(Some(_)) => outbound.commit(lane, [0; 4], 0),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}
