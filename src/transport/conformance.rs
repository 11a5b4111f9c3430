//! What every transport must do, checked on all of them with both ends in one thread. What takes two threads or
//! processes is checked in the transports' own tests.

use super::{
    Body, CALL_LANES, Caps, Expected, Header, LANES, Link, MAX_MESSAGE, Message, Pinned, Reach, Ticket,
    Wires, inproc,
    links::{Attach, Choice, Links},
    plugin, shm, sim, tcp,
};
use crate::{
    mem::{Region, shared::SharedMemory},
    net::Protection,
    types::Error,
};
use std::thread;

/// More looks than any message, credit or link of a working transport takes in a test.
const PATIENCE: usize = 10_000;

/// A rank's link to send on and its peer's to receive on.
pub(crate) fn connect<'w, W: Wires>(from: &'w W, to: &'w W) -> (&'w W::Link, &'w W::Link) {
    connect_ranks(from, 0, to, 1)
}

fn connect_ranks<'w, W: Wires>(from: &'w W, me: usize, to: &'w W, peer: usize) -> (&'w W::Link, &'w W::Link) {
    // Where the peer's hand is needed it looks at what came.
    let look = || to.from(me).unwrap().is_some();
    let sends = (0..PATIENCE)
        .find_map(|_| from.to(peer).unwrap().or_else(|| (look(), None).1))
        .expect("a link to send on");
    let receives = (0..PATIENCE)
        .find_map(|_| to.from(me).unwrap())
        .expect("a link to receive on");
    (sends, receives)
}

/// A link whose two ranks go on with what is under way before each look.
struct Lively<'l, L, F> {
    link: &'l L,
    progress: F,
}

impl<L: Link, F: Fn()> Link for Lively<'_, L, F> {
    fn caps(&self) -> Caps {
        self.link.caps()
    }

    fn reserve(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        (self.progress)();
        self.link.reserve(lane, len)
    }

    fn reserve_open(&self, lane: usize, len: usize) -> Result<Option<Region<'_>>, Error> {
        (self.progress)();
        self.link.reserve_open(lane, len)
    }

    fn answer(&self, lane: usize, len: usize) -> Option<Region<'_>> {
        (self.progress)();
        self.link.answer(lane, len)
    }

    fn commit(&self, lane: usize, header: Header) {
        self.link.commit(lane, header);
    }

    fn has_credit(&self, lane: usize, len: usize) -> Option<bool> {
        self.link.has_credit(lane, len)
    }

    fn send(&self, lane: usize, header: Header, body: &Region<'_>) -> Option<bool> {
        (self.progress)();
        self.link.send(lane, header, body)
    }

    fn reach(&self, body: &Region<'_>) -> Reach {
        self.link.reach(body)
    }

    fn offer(&self, lane: usize, header: Header, body: Region<'_>) -> Result<Option<Ticket>, Error> {
        self.link.offer(lane, header, body)
    }

    fn taken(&self, lane: usize, ticket: Ticket) -> bool {
        self.link.taken(lane, ticket)
    }

    fn peek(&self, lane: usize) -> Result<Option<Message<'_>>, Error> {
        (self.progress)();
        self.link.peek(lane)
    }

    fn land(&self, lane: usize, header: &Header, target: &Region<'_>) {
        self.link.land(lane, header, target);
    }

    fn expect(&self, lane: usize, header: &Header, len: usize) -> Expected<'_> {
        (self.progress)();
        self.link.expect(lane, header, len)
    }

    fn foresee(&self, lane: usize, len: usize) {
        self.link.foresee(lane, len);
    }

    fn take(&self, lane: usize, target: &Region<'_>) -> Result<bool, Error> {
        self.link.take(lane, target)
    }

    fn pin(&self, lane: usize, len: usize) -> Result<Option<Pinned<'_>>, Error> {
        self.link.pin(lane, len)
    }

    fn release(&self, lane: usize) {
        self.link.release(lane);
    }
}

/// Sends if there is credit within a few looks: messages with odd numbers at one go, the others in a room that is reserved.
pub(crate) fn try_send(link: &impl Link, lane: usize, header: Header, body: &[u8]) -> bool {
    if header[0] % 2 == 1 {
        return (0..=2 * sim::LONGEST_DELAY).any(|_| {
            let has_credit = body.len() <= shm::INLINE && link.has_credit(lane, body.len()) == Some(true);
            let is_sent = link.send(lane, header, &Region::of(body)).unwrap();
            assert!(is_sent || !has_credit, "there was a credit");
            is_sent
        });
    }
    let room = (0..=2 * sim::LONGEST_DELAY).find_map(|_| link.reserve(lane, body.len()).unwrap());
    room.is_some_and(|room| {
        room.copy_from(&Region::of(body));
        link.commit(lane, header);
        true
    })
}

pub(crate) fn send(link: &impl Link, lane: usize, header: Header, body: &[u8]) {
    assert!(try_send(link, lane, header, body), "no credit on lane {lane}");
}

/// The oldest message, released.
pub(crate) fn recv(link: &impl Link, lane: usize) -> (Header, Vec<u8>) {
    let message = (0..PATIENCE)
        .find_map(|_| link.peek(lane).unwrap())
        .expect("a message");
    let mut body = vec![0u8; message.body.len()];
    assert!(link.take(lane, &Region::of_mut(&mut body)).unwrap(), "a body");
    link.release(lane);
    (message.header, body)
}

pub(crate) fn bytes_of(region: &Region<'_>) -> Vec<u8> {
    let mut bytes = vec![0u8; region.len()];
    Region::of_mut(&mut bytes).copy_from(region);
    bytes
}

/// Message `number` of a lane: told from every other by its header, its length and each byte.
pub(crate) fn sample(lane: usize, number: u32, len: usize) -> (Header, Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(u64::from(number) << 8 | lane as u64);
    let body = std::iter::repeat_with(|| random.u8(..)).take(len).collect();
    ([number, lane as u32, len as u32, !number], body)
}

/// Lengths at which something changes in some transport, up to the greatest.
pub(crate) fn lengths(max_message: usize) -> Vec<usize> {
    let edges = [
        0,
        1,
        3,
        4,
        7,
        8,
        16,
        17,
        40,
        41,
        64,
        104,
        105,
        128,
        1000,
        max_message - 1,
        max_message,
    ];
    edges.into_iter().filter(|&len| len <= max_message).collect()
}

/// Bodies of every kind of length arrive unchanged, where the contract says that they lie.
fn every_length(out: &impl Link, into: &impl Link) {
    for lane in 0..LANES {
        for (number, &len) in lengths(out.caps().max_message).iter().enumerate() {
            let (header, body) = sample(lane, number as u32, len);
            let room = (0..PATIENCE)
                .find_map(|_| out.reserve(lane, len).unwrap())
                .expect("room");
            room.copy_from(&Region::of(&body));
            let again = (0..PATIENCE)
                .find_map(|_| out.reserve(lane, len).unwrap())
                .expect("room");
            assert!(again.is(&room), "asking again gives the same room");
            assert_eq!(again.len(), len);
            out.commit(lane, header);
            let message = (0..PATIENCE)
                .find_map(|_| into.peek(lane).unwrap())
                .expect("a message");
            let align = if len >= 128 { 64 } else { 8 };
            let here = message.body.here().expect("a body that was copied is here");
            for at in [&room, &here] {
                assert_eq!(at.as_ptr().addr() % align, 0, "alignment of {len} bytes");
            }
            assert_eq!((message.header, bytes_of(&here)), (header, body.clone()));
            assert_eq!(
                recv(into, lane),
                (header, body.clone()),
                "looking twice sees the same"
            );
            let sent = (0..PATIENCE).any(|_| out.send(lane, header, &Region::of(&body)).unwrap());
            assert!(sent, "room");
            into.foresee(lane, len);
            let expected = (0..PATIENCE).find_map(|_| match into.expect(lane, &header, len) {
                Expected::Body(here) => Some(bytes_of(&here)),
                Expected::Nothing => None,
                Expected::Other => panic!("another message than the one that was sent"),
            });
            assert_eq!(expected.as_ref(), Some(&body), "sent at one go");
            assert_eq!(recv(into, lane), (header, body), "looking twice sees the same");
        }
    }
}

/// A lane takes `capacity` messages at most, and so many at least as are left when `batch` − 1 of those that were released are still to
/// be told of, and no more until `batch` of them are released; they come out in order; the others go on.
fn credits_and_lanes(out: &impl Link, into: &impl Link, [capacity, batch]: [u32; 2]) {
    for full in 0..LANES {
        let mut first = 0;
        for round in 0..5 {
            let len = 3 * round as usize;
            let message = |number| sample(full, number, len + number as usize % 200);
            let mut end = first;
            while end <= first + capacity - batch {
                let (header, body) = message(end);
                send(out, full, header, &body);
                end += 1;
            }
            while try_send(out, full, message(end).0, &message(end).1) {
                end += 1;
            }
            assert!(end <= first + capacity, "a credit too many");
            for other in (0..LANES).filter(|&other| other != full) {
                let (header, body) = sample(other, round, 300);
                send(out, other, header, &body);
                assert_eq!(
                    recv(into, other),
                    (header, body),
                    "lane {other} waited for lane {full}"
                );
            }
            for number in first..end {
                assert_eq!(recv(into, full), message(number));
            }
            assert!(
                (0..100).all(|_| into.peek(full).unwrap().is_none()),
                "a message too many"
            );
            first = end;
        }
        // So many releases are as many credits.
        let mut sent = 0;
        while sent <= capacity - batch {
            send(out, full, [sent; 4], &[]);
            sent += 1;
        }
        while try_send(out, full, [sent; 4], &[]) {
            sent += 1;
        }
        let (mut received, end) = (0, 3 * capacity);
        while sent < end {
            for _ in 0..batch {
                assert_eq!(recv(into, full).0, [received; 4]);
                received += 1;
            }
            for _ in 0..batch {
                send(out, full, [sent; 4], &[]);
                sent += 1;
            }
            assert!(
                !try_send(out, full, [sent; 4], &[]),
                "a release gave more than a credit"
            );
        }
        for number in received..sent {
            assert_eq!(recv(into, full).0, [number; 4]);
        }
    }
}

/// Where bodies lie that are not copied.
enum Memory {
    Own(Vec<u8>),
    /// In an allocation that peers may read.
    Shared(Option<SharedMemory<u8>>),
}

impl Memory {
    /// The first bytes of it.
    fn region(&mut self, len: usize) -> Region<'static> {
        let whole: &mut [u8] = match self {
            Memory::Own(bytes) => {
                bytes.resize(MAX_MESSAGE, 0);
                bytes
            }
            Memory::Shared(memory) => memory.get_or_insert_with(|| SharedMemory::new(MAX_MESSAGE).unwrap()),
        };
        let whole = Region::of_mut(whole);
        // SAFETY: it stays where it is as long as the memory, for which the checks below use it.
        unsafe { Region::from_raw(whole.as_ptr(), whole.len()) }.part(0, len)
    }
}

/// Offered bodies of every length arrive as they lie, between copied ones and in their order, and are taken when they are
/// released and no earlier.
fn offers(out: &impl Link, into: &impl Link, memory: &mut Memory) {
    let reach = out.reach(&memory.region(out.caps().max_message));
    if reach == Reach::No {
        return;
    }
    for lane in 0..LANES {
        for (number, &len) in lengths(out.caps().max_message).iter().enumerate() {
            let (header, body) = sample(lane, number as u32, len);
            let offered = memory.region(len);
            offered.copy_from(&Region::of(&body));
            if out.reach(&offered) == Reach::No {
                continue;
            }
            let offer = || out.offer(lane, header, offered).unwrap();
            let ticket = (0..PATIENCE).find_map(|_| offer()).expect("credit");
            let copied = sample(lane, !(number as u32), 200);
            send(out, lane, copied.0, &copied.1);
            let stays = reach != Reach::Sending;
            assert!((0..100).all(|_| !(stays && out.taken(lane, ticket))));
            let wanted = (header, bytes_of(&offered));
            let seen = (0..PATIENCE).find_map(|_| into.peek(lane).unwrap());
            let seen = seen.expect("a message").body;
            assert_eq!(seen.len(), len);
            assert_eq!(seen.here().is_none(), stays);
            assert!(reach != Reach::Taking || matches!(seen, Body::There(_)));
            if matches!(seen, Body::Lent(_)) {
                let pinned = into.pin(lane, len).unwrap().expect("it is not withdrawn");
                assert_eq!(bytes_of(&pinned.body()), wanted.1);
                assert!(pinned.end());
            }
            assert!(into.take(lane, &Region::of_mut(&mut vec![0u8; len])).unwrap());
            assert!(
                (0..100).all(|_| !(stays && out.taken(lane, ticket))),
                "it may be taken again"
            );
            assert_eq!(recv(into, lane), wanted);
            assert!((0..PATIENCE).any(|_| out.taken(lane, ticket)), "it was released");
            assert_eq!(recv(into, lane), copied);
            assert!(out.taken(lane, ticket), "it stays taken");
        }
    }
}

/// Where a message is wanted makes no difference to what arrives, nor to the messages after it; one that is not the one that was
/// meant stays away from there.
fn landings(out: &impl Link, into: &impl Link, memory: &mut Memory) {
    for lane in 0..LANES {
        for (number, &len) in lengths(out.caps().max_message).iter().enumerate() {
            let number = number as u32;
            let (meant, other) = (sample(lane, number, len), sample(lane, !number, len));
            for (sent, begun) in [(&meant, false), (&meant, true), (&other, false), (&other, true)] {
                let target = memory.region(len);
                target.copy_from(&Region::of(&vec![0u8; len]));
                if begun {
                    send(out, lane, sent.0, &sent.1);
                }
                if into.peek(lane).unwrap().is_none() {
                    into.land(lane, &meant.0, &target);
                }
                if !begun {
                    send(out, lane, sent.0, &sent.1);
                }
                let next = try_send(out, lane, [7; 4], &[1, 2, 3]);
                assert_eq!(recv(into, lane), *sent);
                if !next {
                    send(out, lane, [7; 4], &[1, 2, 3]);
                }
                assert!(std::ptr::eq(sent, &meant) || bytes_of(&target).iter().all(|&byte| byte == 0));
                assert_eq!(recv(into, lane), ([7; 4], vec![1, 2, 3]));
            }
        }
    }
}

/// What is refused is refused before anything happens.
/// Messages that may be answered in their place are received, answered there or elsewhere, and the answers received. How many
/// were answered there.
fn answers(ours: &impl Link, theirs: &impl Link) -> usize {
    let (mut there, most) = (0, ours.caps().max_message);
    for len in lengths(most).into_iter().filter(|&len| len > 0) {
        for lane in 0..CALL_LANES {
            let (header, body) = sample(lane, len as u32, len);
            let opened = (0..PATIENCE).find_map(|_| ours.reserve_open(lane, len).unwrap());
            opened
                .expect("a credit")
                .copy_from(&Region::of_mut(&mut body.clone()));
            ours.commit(lane, header);
            let found = (0..PATIENCE).find_map(|_| theirs.peek(lane).unwrap());
            let message = found.expect("a message").body.here().expect("a copy");
            assert_eq!(bytes_of(&message), body);
            let mut answer: Vec<u8> = body.iter().map(|byte| !byte).collect();
            let (room, is_there) = match theirs.answer(lane, len) {
                Some(room) => (room, true),
                None => {
                    let room = (0..PATIENCE).find_map(|_| theirs.reserve(lane, len).unwrap());
                    (room.expect("a credit"), false)
                }
            };
            assert_eq!(is_there, room.as_ptr() == message.as_ptr());
            there += usize::from(is_there);
            room.copy_from(&Region::of_mut(&mut answer));
            theirs.commit(lane, header);
            theirs.release(lane);
            assert_eq!(recv(ours, lane), (header, answer));
            // A plain message is not.
            send(ours, lane, header, &body);
            let arrived = (0..PATIENCE).any(|_| theirs.peek(lane).unwrap().is_some());
            assert!(arrived && theirs.answer(lane, len).is_none());
            assert_eq!(recv(theirs, lane), (header, body));
        }
    }
    there
}

fn limits(out: &impl Link, into: &impl Link) {
    let caps = out.caps();
    assert!(out.reserve(0, caps.max_message + 1).is_err());
    assert!(out.reserve(0, usize::MAX).is_err());
    let offered = Region::of(&[1u8]);
    let is_offered = out.reach(&offered) != Reach::No;
    let goes = matches!(out.offer(0, [0; 4], offered), Ok(Some(_)));
    assert_eq!(goes, is_offered);
    if is_offered {
        assert_eq!(recv(into, 0), ([0; 4], vec![1]));
        let body = vec![0u8; caps.max_message + 1];
        assert!(out.offer(0, [0; 4], Region::of(&body)).is_err());
    }
    assert!((0..100).all(|_| into.peek(0).unwrap().is_none()));
}

/// All checks, in both directions; `credits` are how many reserved messages a lane holds, and after how many releases their sender hears
/// of them at the latest. How many messages were answered in their place.
fn conforms<W: Wires>(ranks: [&W; 2], credits: [u32; 2]) -> usize {
    assert!(ranks[1].from(0).unwrap().is_none(), "a link before it was made");
    for me in [0, 1] {
        let (out, into) = connect_ranks(ranks[me], me, ranks[1 - me], 1 - me);
        let progress = || ranks.iter().for_each(|rank| rank.progress().unwrap());
        let [out, into] = [out, into].map(|link| Lively { link, progress });
        every_length(&out, &into);
        credits_and_lanes(&out, &into, credits);
        for mut memory in [Memory::Own(Vec::new()), Memory::Shared(None)] {
            offers(&out, &into, &mut memory);
            landings(&out, &into, &mut memory);
        }
        limits(&out, &into);
        (0..PATIENCE).find(|_| {
            progress();
            ranks
                .iter()
                .all(|rank| !rank.unsent() && rank.unsent_to().is_empty())
        });
        assert!(ranks.iter().all(|rank| !rank.unsent()), "something is never sent");
    }
    for (me, peer) in [(0, 0), (0, 2), (1, usize::MAX)] {
        assert!(
            ranks[me].to(peer).is_err() && ranks[me].from(peer).is_err(),
            "rank {peer} is no peer of {me}"
        );
    }
    let progress = || ranks.iter().for_each(|rank| rank.progress().unwrap());
    let ends = [0, 1].map(|me: usize| Lively {
        link: connect_ranks(ranks[me], me, ranks[1 - me], 1 - me).0,
        progress,
    });
    answers(&ends[0], &ends[1]) + answers(&ends[1], &ends[0])
}

#[test]
fn shm_conforms() {
    for (attach, direct) in [
        (Attach::Off, false),
        (Attach::Auto, false),
        (Attach::Off, true),
        (Attach::Auto, true),
    ] {
        for depth in [shm::SHALLOW, shm::DEEP] {
            let ranks = inproc::links(2).unwrap();
            let ranks: Vec<Links> = (ranks.into_iter())
                .map(|links| links.with_attach(attach).with_direct(direct, 1))
                // Each the first of its thread.
                .map(|links| match depth {
                    shm::DEEP => thread::spawn(|| links.of_processor(false)).join().unwrap(),
                    _ => links,
                })
                .collect();
            let answered = conforms([&ranks[0], &ranks[1]], [depth.messages() as u32, 1]);
            assert!(answered > 0 || crate::sys::cache::keeps_what_it_reads().is_some());
        }
    }
}

#[test]
fn tcp_conforms() {
    use Protection::{Authenticate, Check, Encrypt, Off};
    let all = [
        (1, Off),
        (2, Off),
        (3, Off),
        (CALL_LANES, Off),
        (1, Authenticate),
        (3, Encrypt),
        (2, Check),
    ];
    for (streams, protection) in all {
        let ranks = inproc::protected_links(2, protection).unwrap();
        let settings = tcp::Settings {
            streams: Some(streams),
            ..Default::default()
        };
        let ranks: Vec<Links> = (ranks.into_iter())
            .map(|links| links.with_transport(Choice::Tcp, settings.clone()))
            .collect();
        let depth = super::tcp::DEPTH as u32;
        conforms([&ranks[0], &ranks[1]], [depth, depth / 2]);
    }
}

#[test]
fn plugins_conform() {
    let ranks = plugin::tests::links(2, Choice::Plugin);
    conforms([&ranks[0], &ranks[1]], [super::plugin::DEPTH as u32, 1]);
}

#[test]
fn sim_conforms() {
    for seed in 0..10 {
        for slots in [0, 1, 2, 5] {
            let world = sim::World::new(2, slots, seed).with_max_message(512 << (seed % 8));
            conforms([&world.wires(0), &world.wires(1)], [slots.max(1) as u32, 1]);
        }
    }
}
