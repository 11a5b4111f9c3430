//! What is particular to shared memory: the wrap of the numbers, broken peers, two threads, two processes.

mod direct;
mod offers;
mod pool;
mod soak;

use super::{layout::*, *};

use crate::{
    net::Parcel,
    transport::{
        LANES, Link as _, Wires as _,
        conformance::{bytes_of, recv, sample, send, try_send},
        links::{Links, Opener},
    },
    types::Cause,
};
use std::sync::{Arc, atomic::Ordering::*};

/// By system calls alone, and as a thread of the same process.
const ATTACHED: Ways = Ways {
    attach: true,
    direct: false,
    link: [1, 0, 1],
};
const DIRECT: Ways = Ways {
    attach: true,
    direct: true,
    link: [1, 0, 1],
};
const NO_WAY: Ways = Ways {
    attach: false,
    direct: false,
    link: [1, 0, 1],
};

/// The two ends of one direction from rank 0 to rank 1, with messages numbered from `start`, which may be attached.
fn pair(start: u32) -> (super::Link, super::Link) {
    pair_by(start, ATTACHED, &Arc::default(), |_| {})
}

/// The same, where long bodies lie in `lease`.
fn pair_with(start: u32, lease: &Arc<Lease>) -> (super::Link, super::Link) {
    pair_by(start, ATTACHED, lease, |_| {})
}

/// The same in these ways, with a parcel that is changed before it comes.
fn pair_by(
    start: u32,
    ways: Ways,
    lease: &Arc<Lease>,
    change: impl FnOnce(&mut Parcel),
) -> (super::Link, super::Link) {
    let bells = [Bell::new().unwrap(), Bell::new().unwrap()];
    let (opening, mut parcel) = Opening::starting_at(start, &bells[0], ways, lease.depth()).unwrap();
    change(&mut parcel);
    let (sends, receives) = (super::Link::default(), super::Link::default());
    assert!(receives.set_inbound(Inbound::attach(0, &parcel, &bells[1], ways).unwrap()));
    let welcome = bells[1].welcome().unwrap();
    let half = opening.connected(1, &welcome, &bells[0], lease).unwrap();
    assert!(sends.set_outbound(half));
    (sends, receives)
}

/// The rank that `result`'s error blames, and why.
fn blamed<T>(result: Result<T, Error>) -> (u32, String) {
    match result.err().expect("must fail") {
        Error::Failed(Cause::Broken { rank, what }) => (rank, what),
        other => panic!("blames nobody: {other}"),
    }
}

/// Takes the oldest message of lane 0.
fn take(into: &super::Link, len: usize) -> Option<Vec<u8>> {
    let mut body = vec![0; len];
    let taken = into.take(0, &Region::of_mut(&mut body)).unwrap();
    taken.then_some(body)
}

#[test]
fn numbers_wrap() {
    for lease in [Lease::default(), Lease::deep()].map(Arc::new) {
        let depth = lease.depth().messages() as u32;
        // The flags come round at 2^31, the counts at 2^32; neither start is a multiple of the depth.
        for start in [u32::MAX - 9, (1 << 31) - 7, u32::MAX, 1 << 31] {
            let (out, into) = pair_with(start, &lease);
            for lane in 0..LANES {
                assert!(into.peek(lane).unwrap().is_none());
                for turn in 0..20 {
                    for number in 0..depth {
                        let (header, body) = sample(lane, turn + number, 200 * number as usize);
                        send(&out, lane, header, &body);
                    }
                    assert!(!try_send(&out, lane, [0; 4], &[]));
                    for number in 0..depth {
                        let sent = sample(lane, turn + number, 200 * number as usize);
                        assert_eq!(recv(&into, lane), sent);
                    }
                    assert!(into.peek(lane).unwrap().is_none());
                }
            }
        }
    }
}

/// Deep lanes hold no more long messages than others, and short ones behind those.
#[test]
fn long_messages_have_few_in_flight() {
    let (out, into) = pair_with(7, &Arc::new(Lease::deep()));
    let [shallow, deep] = [SHALLOW, DEEP].map(Depth::messages);
    let long = |number: usize| sample(0, number as u32, 5000);
    for turn in 0..3 * deep {
        let sent = (0..deep).take_while(|&k| {
            let (header, body) = long(turn + k);
            try_send(&out, 0, header, &body)
        });
        assert_eq!(sent.count(), shallow);
        for _ in shallow..deep {
            send(&out, 0, [1; 4], &[2; 300]);
        }
        assert!(!try_send(&out, 0, [0; 4], &[]));
        for k in 0..shallow {
            assert_eq!(recv(&into, 0), long(turn + k));
        }
        let (header, body) = long(0);
        assert!(!try_send(&out, 0, header, &body));
        (shallow..deep).for_each(|_| assert_eq!(recv(&into, 0), ([1; 4], vec![2; 300])));
    }
}

#[test]
fn small_messages_take_one_line_and_lie_apart() {
    let (out, _into) = pair(0);
    let at = |lane, len| out.reserve(lane, len).unwrap().unwrap().as_ptr().addr();
    let entry = |lane: usize| &raw const *out.outbound().segment.entry(lane, 0, SHALLOW) as usize;
    for lane in 0..LANES {
        assert_eq!(at(lane, FIRST_LINE) + FIRST_LINE, entry(lane) + 64);
        assert_eq!(at(lane, INLINE) + INLINE, entry(lane) + 128);
        let entries = entry(0)..entry(0) + 128 * LANES * SHALLOW.messages();
        assert!(!entries.contains(&at(lane, INLINE + 1)));
    }
}

fn send_shown(out: &super::Link, lane: usize, header: Header, body: &[u8]) {
    assert_eq!(out.send_shown(lane, header, &Region::of(body)), Some(true));
}

#[test]
fn what_is_shown_is_taken_once_there_or_from_its_entry() {
    let (out, into) = pair(u32::MAX - 1);
    let shown = |lane: usize, (header, body): &(Header, Vec<u8>)| {
        let word = into.take_shown(lane, header, body.len(), 1);
        word.map(|word| word.to_ne_bytes()[..body.len()].to_vec())
    };
    for turn in 0..20 {
        for lane in 0..CALL_LANES {
            let messages: Vec<_> = (0..3)
                .map(|number| sample(lane, turn + number, (turn + number) as usize % (MAX_SHOWN + 1)))
                .collect();
            let send = |k: usize| send_shown(&out, lane, messages[k].0, &messages[k].1);
            send(0);
            let (mut other, body) = messages[0].clone();
            other[2] ^= 1;
            assert_eq!(shown(lane, &(other, body)), None, "another header");
            assert_eq!(shown((lane + 1) % CALL_LANES, &messages[0]), None, "another lane");
            assert_eq!(shown(lane, &messages[0]), Some(messages[0].1.clone()));
            assert_eq!(shown(lane, &messages[0]), None, "a message came twice");
            assert!(into.peek(lane).unwrap().is_none(), "and it came from its entry");
            send(1);
            send(2);
            assert_eq!(shown(lane, &messages[1]), None, "it was written over");
            assert_eq!(recv(&into, lane), messages[1]);
            assert_eq!(shown(lane, &messages[2]), Some(messages[2].1.clone()));
        }
    }
    // What is longer, or no call's, comes as ever.
    for (lane, len) in [(0, MAX_SHOWN + 1), (CALL_LANES, 4), (LANES - 1, 0)] {
        let message = sample(lane, 1, len);
        send_shown(&out, lane, message.0, &message.1);
        assert_eq!(shown(lane, &(message.0, vec![0; len.min(8)])), None);
        assert_eq!(recv(&into, lane), message);
    }
    // So does what was reserved.
    let message = sample(2, 5, 6);
    let room = out.reserve(2, 6).unwrap().unwrap();
    room.copy_from(&Region::of(&message.1));
    out.commit_shown(2, message.0);
    assert_eq!(shown(2, &message), Some(message.1));
}

#[test]
fn of_a_link_one_segment_has_the_line_that_both_write() {
    let (out, into) = pair(0);
    let [(ours, host), (theirs, guest)] = [out.pair().unwrap(), into.pair().unwrap()];
    assert_eq!((host, guest), (Side::Host, Side::Guest));
    assert_eq!(host.other(), guest);
    let places = [
        (ours, &out.outbound().segment.pair),
        (theirs, &into.inbound().segment.pair),
    ];
    assert!(places.iter().all(|(pair, of)| std::ptr::eq(*pair, *of)));
    // The other direction of the same link has none.
    let ways = Ways {
        link: [1, 1, 0],
        ..NO_WAY
    };
    let (out, into) = pair_by(0, ways, &Arc::default(), |_| {});
    assert!(out.pair().is_none() && into.pair().is_none());
    send_shown(&out, 0, [1; 4], &[1]);
    assert_eq!(into.take_shown(0, &[1; 4], 1, 1), None);
    assert_eq!(recv(&into, 0), ([1; 4], vec![1]));
}

#[test]
fn a_length_that_does_not_fit_is_refused() {
    for len in [MAX_MESSAGE as u32 + 1, MAPPED - 1] {
        let (out, into) = pair(0);
        send(&out, 3, [0; 4], &[1, 2, 3]);
        assert!(into.peek(3).unwrap().is_some());
        out.outbound().segment.entry(3, 0, SHALLOW).len.store(len, SeqCst);
        let (rank, what) = blamed(into.peek(3));
        assert_eq!(rank, 0);
        assert!(what.contains(&len.to_string()), "{what}");
        assert!(into.peek(2).unwrap().is_none());
    }
    // A length that fits gives wrong bytes, never a fault.
    let (out, into) = pair(0);
    send(&out, 7, [0; 4], &[1]);
    out.outbound()
        .segment
        .entry(7, 0, SHALLOW)
        .len
        .store(MAX_MESSAGE as u32, SeqCst);
    assert_eq!(recv(&into, 7).1.len(), MAX_MESSAGE);
}

/// What a rank has released is known from its next message, without a look at the count.
#[test]
fn acknowledgements_travel_with_messages() {
    let bells = [Bell::new().unwrap(), Bell::new().unwrap()];
    let links = [super::Link::default(), super::Link::default()];
    for (from, to) in [(0, 1), (1, 0)] {
        let (opening, parcel) = Opening::new(&bells[from], NO_WAY, SHALLOW).unwrap();
        assert!(links[to].set_inbound(Inbound::attach(from, &parcel, &bells[to], NO_WAY).unwrap()));
        let welcome = bells[to].welcome().unwrap();
        assert!(
            links[from].set_outbound(
                opening
                    .connected(to, &welcome, &bells[from], &Arc::default())
                    .unwrap()
            )
        );
    }
    let [one, other] = &links;
    // Not on the lanes of messages between two ranks, where one may lie unread while the count comes round.
    for lane in 0..LANES {
        for k in 0..SHALLOW.messages() as u32 {
            send(one, lane, [k; 4], &[1; 300]);
        }
        assert!(!try_send(one, lane, [0; 4], &[]));
        (0..SHALLOW.messages()).for_each(|_| drop(recv(other, lane)));
        send(other, lane, [9; 4], &[]);
        // As if the count had not come yet.
        other.inbound().segment.released.0[lane].store(0, SeqCst);
        assert!(!try_send(one, lane, [0; 4], &[]));
        assert_eq!(recv(one, lane).0, [9; 4]);
        assert_eq!(try_send(one, lane, [0; 4], &[]), lane < CALL_LANES);
    }
}

#[test]
fn a_flag_that_is_not_due_is_no_message() {
    let (out, into) = pair(0);
    for flag in [0, 2, 3, 9, u32::MAX] {
        out.outbound()
            .segment
            .entry(0, 0, SHALLOW)
            .flag
            .store(flag, SeqCst);
        assert!(into.peek(0).unwrap().is_none());
    }
}

#[test]
fn credits_that_were_not_earned_are_refused() {
    for claimed in [5, 6, 1000, u32::MAX, 1 << 31] {
        let (out, into) = pair(0);
        for number in 0..SHALLOW.messages() as u32 {
            send(&out, 0, [number; 4], &[]);
        }
        into.inbound().segment.released.0[0].store(claimed, SeqCst);
        let (rank, what) = blamed(out.reserve(0, 1));
        assert_eq!(rank, 1);
        assert!(
            what.contains(&format!("released {claimed} messages of lane 0")),
            "{what}"
        );
        assert!(out.reserve(1, 1).unwrap().is_some());
    }
    // Nor may they go back.
    let (out, into) = pair(0);
    for number in 0..SHALLOW.messages() as u32 + 2 {
        send(&out, 0, [number; 4], &[]);
        recv(&into, 0);
    }
    for number in 0..2 {
        send(&out, 0, [number; 4], &[]);
    }
    into.inbound().segment.released.0[0].store(1, SeqCst);
    assert_eq!(
        blamed((0..SHALLOW.messages()).try_for_each(|_| {
            if out.reserve(0, 1)?.is_some() {
                out.commit(0, [0; 4]);
            }
            Ok(())
        }))
        .0,
        1
    );
}

#[test]
fn a_strange_segment_is_refused() {
    let ours = Bell::new().unwrap();
    let refuse = |change: &dyn Fn(&mut Parcel)| {
        let (_opening, mut parcel) = Opening::new(&ours, ATTACHED, SHALLOW).unwrap();
        change(&mut parcel);
        let (rank, what) = blamed(Inbound::attach(5, &parcel, &ours, ATTACHED));
        assert_eq!(rank, 5);
        what
    };
    let other_layout: [&dyn Fn(&mut Parcel); 7] = [
        &|parcel| parcel.bytes.clear(),
        &|parcel| parcel.bytes.push(0),
        &|parcel| parcel.bytes.truncate(hello(SHALLOW).len() + 7),
        &|parcel| parcel.bytes[8] += 1,
        &|parcel| parcel.fds.clear(),
        &|parcel| drop(parcel.fds.pop()),
        &|parcel| parcel.fds.push(ours.descriptor().unwrap()),
    ];
    for change in other_layout {
        assert!(refuse(change).contains("laid out in another way"));
    }
    assert!(refuse(&|parcel| parcel.fds.swap(0, 1)).contains("bytes large instead of"));
    let file = rustix::fs::memfd_create("ccl-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, size_of::<Segment>() as u64).unwrap();
    assert!(refuse(&|parcel| parcel.fds[0] = file.try_clone().unwrap()).contains("seals"));
    let (opening, _parcel) = Opening::new(&ours, ATTACHED, SHALLOW).unwrap();
    assert_eq!(
        blamed(opening.connected(6, &Parcel::default(), &ours, &Arc::default())).0,
        6
    );
}

/// An [`Opener`] that has these parcels.
struct Given(std::sync::Mutex<Vec<(usize, Parcel)>>);

impl Opener for Given {
    fn open(&self, peer: usize, _parcel: Parcel) -> Result<Option<Parcel>, Error> {
        Err(broken(peer, "nobody is there".into()))
    }

    fn arrivals(&self) -> Vec<(usize, Parcel)> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

#[test]
fn links_come_once_and_from_peers_only() {
    let bell = Bell::new().unwrap();
    let segment = || Opening::new(&bell, DIRECT, SHALLOW).unwrap().1;
    let links = |parcels| {
        Links::new(
            1,
            3,
            Box::new(Given(std::sync::Mutex::new(parcels))),
            bell.clone(),
        )
    };

    let good = links(vec![(0, segment()), (2, segment())]);
    let before = good.memory();
    assert!(good.from(2).unwrap().is_some() && good.from(0).unwrap().is_some());
    assert!(good.memory() >= before + 2 * size_of::<Segment>());
    assert_eq!(blamed(good.to(2)), (2, "nobody is there".into()));

    let twice = links(vec![(0, segment()), (0, segment())]);
    let (rank, what) = blamed(twice.from(2));
    assert_eq!((rank, what.as_str()), (0, "it opened a second link to rank 1"));

    assert_eq!(blamed(links(vec![(2, Parcel::default())]).from(0)).0, 2);
    for stranger in [1, 3, usize::MAX] {
        assert!(links(vec![(stranger, segment())]).from(0).is_err());
    }
}

/// An [`Opener`] whose peers are reached by connections alone.
#[cfg(feature = "cuda")]
struct Apart;

#[cfg(feature = "cuda")]
impl Opener for Apart {
    fn open(&self, _peer: usize, _parcel: Parcel) -> Result<Option<Parcel>, Error> {
        Ok(None)
    }

    fn arrivals(&self) -> Vec<(usize, Parcel)> {
        Vec::new()
    }
}

#[cfg(feature = "cuda")]
#[test]
fn a_descriptor_that_reaches_nobody_is_told() {
    let bell = Bell::new().unwrap();
    let fd = rustix::fs::memfd_create("ccl-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let refused = Links::new(0, 2, Box::new(Apart), bell).give(1, fd).unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("rank 1 cannot be given a descriptor"),
        "{refused}"
    );
}
