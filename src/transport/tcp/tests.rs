//! What takes two threads, and peers that do what no rank of this version does.

use super::{Arrival, CAPS, DEPTH, Event, Hub, Outbound, Settings, frame, hub::MOST_PIPES};
use crate::{
    mem::Region,
    net::{ALTERED, Connection, Guard, Parcel, Protection},
    sys::{fork::ProcessFd, socket::receive_bytes, tcp},
    transport::{
        Header, LANES, Link as _, Ticket, Wires,
        conformance::{bytes_of, sample},
        inproc,
        links::{Choice, Links},
    },
    types::{Cause, Error},
};
use std::{
    io::IoSlice,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

const LONG: Duration = Duration::from_secs(60);

fn pair(streams: usize, protection: Protection) -> [Links; 2] {
    let links = inproc::protected_links(2, protection).unwrap().into_iter();
    let settings = Settings {
        streams: Some(streams),
        ..Settings::default()
    };
    let links: Vec<Links> = links
        .map(|l| l.with_transport(Choice::Tcp, settings.clone()))
        .collect();
    links.try_into().unwrap_or_else(|_| panic!("two ranks"))
}

/// Goes on until `look` gives something.
fn until<T>(links: &Links, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        links.progress().map_err(|(_, e)| e).unwrap();
        match look() {
            Some(found) => return found,
            None => assert!(Instant::now() < end, "in vain"),
        }
        thread::yield_now();
    }
}

#[test]
fn long_streams_on_all_lanes_arrive_in_order_in_both_directions() {
    let lens = [0, 24, 1000, 1025, 4096, 5000, CAPS.max_message];
    let len = |number: u32| lens[number as usize % lens.len()];
    use Protection::{Authenticate, Check, Encrypt, Off};
    for (streams, protection, messages) in [
        (1, Off, 400),
        (3, Off, 400),
        (1, Encrypt, 40),
        (3, Authenticate, 40),
        (2, Check, 40),
    ] {
        thread::scope(|scope| {
            for (me, links) in pair(streams, protection).into_iter().enumerate() {
                scope.spawn(move || {
                    let peer = 1 - me;
                    let (mut sent, mut came) = ([0; LANES], [0; LANES]);
                    // What is sent from where it lies, and where messages are wanted: on some lanes.
                    let mut lent: [Option<(Vec<u8>, Ticket)>; LANES] = Default::default();
                    let mut places = [(); LANES].map(|()| vec![0u8; CAPS.max_message]);
                    until(&links, || {
                        for lane in 0..LANES {
                            let (header, body) = sample(lane, sent[lane], len(sent[lane]));
                            let out = links.to(peer).unwrap().unwrap();
                            let is_taken = |(_, ticket): &(_, Ticket)| out.taken(lane, *ticket);
                            let offer = |body: &[u8]| match lane % 2 {
                                0 => out.offer(lane, header, Region::of(body)).unwrap(),
                                _ => out.offer_pages(lane, header, Region::of(body)).unwrap(),
                            };
                            if lane % 3 == 1 {
                                if sent[lane] < messages
                                    && lent[lane].as_ref().is_none_or(is_taken)
                                    && let Some(ticket) = offer(&body)
                                {
                                    lent[lane] = Some((body, ticket));
                                    sent[lane] += 1;
                                }
                            } else if sent[lane] < messages
                                && let Some(room) = out.reserve(lane, body.len()).unwrap()
                            {
                                room.copy_from(&Region::of(&body));
                                out.commit(lane, header);
                                sent[lane] += 1;
                            }
                            let Some(into) = links.from(peer).unwrap() else {
                                continue;
                            };
                            let wanted = sample(lane, came[lane], len(came[lane]));
                            if let Some(message) = into.peek(lane).unwrap() {
                                assert!((message.header, bytes_of(&message.body.here().unwrap())) == wanted);
                                into.release(lane);
                                came[lane] += 1;
                            } else if lane % 2 == 1 && came[lane] < messages {
                                let place = &mut places[lane][..wanted.1.len()];
                                into.land(lane, &wanted.0, &Region::of_mut(place));
                            }
                        }
                        let over = sent.iter().chain(&came).all(|&count| count == messages);
                        let out = links.to(peer).unwrap().unwrap();
                        let is_taken = |(lane, lent): (usize, &Option<(_, Ticket)>)| {
                            lent.as_ref().is_none_or(|(_, ticket)| out.taken(lane, *ticket))
                        };
                        let all_taken = lent.iter().enumerate().all(is_taken);
                        (over && all_taken && !links.unsent()).then_some(())
                    });
                    links.withdraw();
                });
            }
        });
    }
}

#[test]
fn what_was_sent_arrives_after_its_sender_has_gone() {
    [Protection::Off, Protection::Check, Protection::Encrypt]
        .into_iter()
        .for_each(arrives_after_its_sender_has_gone);
}

fn arrives_after_its_sender_has_gone(protection: Protection) {
    let [near, far] = pair(1, protection);
    let (header, body) = sample(2, 7, CAPS.max_message);
    for _ in 0..DEPTH {
        let room = near
            .to(1)
            .unwrap()
            .unwrap()
            .reserve(2, body.len())
            .unwrap()
            .unwrap();
        room.copy_from(&Region::of(&body));
        near.to(1).unwrap().unwrap().commit(2, header);
    }
    // The system may not take it all before somebody reads.
    until(&near, || {
        let _ = far.from(0).unwrap();
        far.progress().unwrap();
        (!near.unsent()).then_some(())
    });
    drop(near);
    assert!(far.may_bring_more(0));
    for _ in 0..DEPTH {
        let link = far.from(0).unwrap().unwrap();
        let message = until(&far, || link.peek(2).unwrap());
        assert!((message.header, bytes_of(&message.body.here().unwrap())) == (header, body.clone()));
        link.release(2);
    }
    let (how, _) = until(&far, || far.trouble(0));
    assert!(!far.may_bring_more(0));
    assert!(how.contains("connection"), "{how}");
}

/// Makes the halves of the link between rank 0, which is `near`, and rank 1 that are not there yet.
fn both_ways(near: &Links, far: &Links) {
    until(near, || {
        far.to(0).unwrap();
        near.to(1).unwrap();
        far.progress().unwrap();
        let both = near.from(1).unwrap().is_some() && far.from(0).unwrap().is_some();
        both.then_some(())
    });
}

/// A long body stays with its sender until it has come; who wants its memory back before leaves nothing that could be taken for it.
#[test]
fn what_is_withdrawn_on_its_way_does_not_come() {
    let [near, far] = pair(1, Protection::Off);
    let (header, mut body) = sample(2, 7, CAPS.max_message);
    both_ways(&near, &far);
    let (out, into) = (near.to(1).unwrap().unwrap(), far.from(0).unwrap().unwrap());
    let ticket = out.offer_pages(2, header, Region::of(&body)).unwrap().unwrap();
    assert!(!out.taken(2, ticket));
    near.progress().unwrap();
    let message = until(&far, || into.peek(2).unwrap());
    assert!((message.header, bytes_of(&message.body.here().unwrap())) == (header, body.clone()));
    until(&near, || {
        far.progress().unwrap();
        out.taken(2, ticket).then_some(())
    });
    into.release(2);

    let ticket = out.offer_pages(2, header, Region::of(&body)).unwrap().unwrap();
    near.progress().unwrap();
    assert!(!out.taken(2, ticket));
    near.withdraw();
    assert!(out.taken(2, ticket));
    body.fill(0xee);
    let (how, _) = until(&far, || far.trouble(0));
    assert!(how.contains("reset") && into.peek(2).unwrap().is_none(), "{how}");
}

/// Longer than the system would have kept it by itself.
#[test]
fn what_nobody_takes_in_outlives_its_sender() {
    let [near, far] = pair(1, Protection::Off);
    let (header, body) = sample(2, 7, 16 << 10);
    let out = near.to(1).unwrap().unwrap();
    for _ in 0..DEPTH {
        let room = out.reserve(2, body.len()).unwrap().unwrap();
        room.copy_from(&Region::of(&body));
        out.commit(2, header);
    }
    until(&near, || (!near.unsent()).then_some(()));
    drop(near);
    thread::sleep(Duration::from_secs(5));
    let into = until(&far, || far.from(0).unwrap());
    for number in 0..DEPTH {
        let message = until(&far, || {
            let trouble = far.trouble(0).filter(|_| into.peek(2).unwrap().is_none());
            assert_eq!(trouble, None, "message {number}");
            into.peek(2).unwrap()
        });
        assert!((message.header, bytes_of(&message.body.here().unwrap())) == (header, body.clone()));
        into.release(2);
    }
}

/// What has stayed with its sender is given back, and what lies there from then on is not taken for it.
#[test]
fn a_connection_on_which_nothing_can_be_sent_is_at_its_end_for_both() {
    [16 << 10, 64 << 10].into_iter().for_each(nothing_can_be_sent);
}

fn nothing_can_be_sent(len: usize) {
    let [near, far] = pair(1, Protection::Off);
    let (header, mut body) = sample(2, 7, len);
    both_ways(&near, &far);
    let (out, into) = (near.to(1).unwrap().unwrap(), far.from(0).unwrap().unwrap());
    let ticket = out.offer_pages(2, header, Region::of(&body)).unwrap().unwrap();
    assert!(!out.taken(2, ticket));
    near.progress().unwrap();
    near.break_off(1, 2);
    let second = out.offer_pages(2, header, Region::of(&body)).unwrap().unwrap();
    near.progress().unwrap();
    assert!(out.taken(2, ticket) && out.taken(2, second));
    body.fill(0xee);
    let (how, _) = until(&far, || far.trouble(0));
    assert!(how.contains("reset") && into.peek(2).unwrap().is_none(), "{how}");
}

/// Long messages wait until their sender moves on, what is posted after them too, and what was withdrawn meanwhile holds up nothing.
#[test]
fn long_messages_go_when_their_sender_moves_on() {
    let [near, far] = pair(1, Protection::Off);
    both_ways(&near, &far);
    let (out, into) = (near.to(1).unwrap().unwrap(), far.from(0).unwrap().unwrap());
    let (first, long) = sample(2, 0, 100_000);
    let (second, short) = sample(2, 1, 8);
    let tickets = [(first, &long), (second, &short)]
        .map(|(header, body)| out.offer(2, header, Region::of(body)).unwrap().unwrap());
    let moved = || tickets.map(|ticket| out.taken(2, ticket));
    assert!(near.unsent() && near.may_have_more() && moved() == [false; 2]);
    until(&near, || (!near.unsent() && !near.may_have_more()).then_some(()));
    assert_eq!(moved(), [true; 2]);
    for (header, body) in [(first, &long), (second, &short)] {
        let message = until(&far, || into.peek(2).unwrap());
        assert!((message.header, bytes_of(&message.body.here().unwrap())) == (header, body.clone()));
        into.release(2);
    }
    let ticket = out.offer(2, first, Region::of(&long)).unwrap().unwrap();
    near.withdraw();
    assert!(out.taken(2, ticket));
    until(&near, || (!near.unsent()).then_some(()));
}

#[test]
fn pipes_in_use_are_few() {
    let hub = Hub::new().unwrap();
    let mut pipes: Vec<_> = (0..MOST_PIPES).map(|_| hub.pipe().unwrap()).collect();
    assert!(hub.pipe().is_none() && hub.has_pipes());
    drop(pipes.pop());
    hub.give_back(pipes.pop().unwrap());
    pipes.extend((0..2).map(|_| hub.pipe().unwrap()));
    assert!(hub.pipe().is_none());
}

/// A rank whose peer's end of the connection is this test's.
fn rank_and_wire() -> (Links, ProcessFd) {
    rank_and_guarded_wire(None)
}

fn rank_and_guarded_wire(guard: Option<Box<Guard>>) -> (Links, ProcessFd) {
    let [ours, theirs] = pair(1, Protection::Off);
    // The other rank's transport hands over a connection and is then out of the way.
    let (near, far) = tcp::pair();
    ours.attach_for_test(
        1,
        Parcel {
            bytes: frame::hello(0, 1),
            fds: vec![far.into_owned()],
            guard,
        },
    )
    .unwrap();
    drop(theirs);
    (ours, near)
}

/// A message of which so many bytes have come when it is said where it is wanted.
#[test]
fn a_message_that_has_begun_comes_where_it_is_wanted() {
    for len in [5000, 40_000, CAPS.max_message] {
        for came in [1, 100, 4072, 4073, 4999, len - 1, len] {
            let (links, wire) = rank_and_wire();
            let (header, body) = sample(3, 1, len);
            let head = frame::Head::Message {
                lane: 3,
                len: len as u32,
                header,
                released: 0,
                stays: false,
            };
            let bytes = [&head.encode()[..], &body].concat();
            let mut place = vec![0u8; len];
            let target = Region::of_mut(&mut place);
            let (first, rest) = bytes.split_at(frame::Head::LEN + came.min(len));
            let send = |bytes: &[u8]| {
                let mut at = 0;
                while at < bytes.len() {
                    at += tcp::send(&wire, &[IoSlice::new(&bytes[at..])]).unwrap_or(0);
                    links.progress().map_err(|(_, e)| e).unwrap();
                }
            };
            send(first);
            let link = links.from(1).unwrap().unwrap();
            if link.peek(3).unwrap().is_none() {
                link.land(3, &header, &target);
            }
            send(rest);
            let message = until(&links, || link.peek(3).unwrap());
            assert!((message.header, bytes_of(&message.body.here().unwrap())) == (header, body.clone()));
            if came < len {
                assert!(bytes_of(&target) == body, "{came} of {len} bytes had come");
            }
            link.release(3);
            links.withdraw();
        }
    }
}

#[test]
fn nonsense_on_a_connection_names_its_sender() {
    let message = |lane, len| {
        frame::Head::Message {
            lane,
            len,
            header: [0; 4],
            released: 0,
            stays: false,
        }
        .encode()
    };
    let credit = frame::Head::Credit {
        lane: 0,
        released: 1,
        come: 0,
    };
    let too_many = [message(0, 0); DEPTH + 1].concat();
    let cases: [(&str, Vec<u8>); 3] = [
        ("bytes that are no message", vec![0xee; frame::Head::LEN]),
        (
            "credits for messages that were never sent",
            credit.encode().to_vec(),
        ),
        ("a message for which there is no room", too_many),
    ];
    for (what, bytes) in cases {
        let (links, wire) = rank_and_wire();
        assert_eq!(tcp::send(&wire, &[IoSlice::new(&bytes)]), Ok(bytes.len()));
        let end = Instant::now() + Duration::from_secs(60);
        let error = loop {
            match links.progress() {
                Err((1, Error::Failed(Cause::Broken { rank: 1, what }))) => break what,
                Err(other) => panic!("{other:?}"),
                Ok(()) => assert!(Instant::now() < end, "{what}: in vain"),
            }
        };
        assert!(error.contains(what), "{error}");
    }
}

/// What a rank sends over a connection with this guard: a message with that body, lent or in a slot.
fn sent(guard: Option<Box<Guard>>, header: Header, body: &[u8], lends: bool) -> Vec<u8> {
    let (near, far) = tcp::pair();
    let hub = Arc::new(Hub::new().unwrap());
    let link = super::Link::new(1, hub.clone());
    let half = Outbound::open(
        1,
        &Settings::default(),
        &hub,
        vec![Connection { fd: near, guard }],
    );
    assert!(link.set_outbound(half.unwrap()));
    if lends {
        link.offer(2, header, Region::of(body)).unwrap().unwrap();
    } else {
        link.reserve(2, body.len())
            .unwrap()
            .unwrap()
            .copy_from(&Region::of(body));
        link.commit(2, header);
    }
    let (mut bytes, mut chunk, end) = (Vec::new(), vec![0; 1 << 16], Instant::now() + LONG);
    let mut is_open = |bytes: &mut Vec<u8>| {
        match receive_bytes(&far, &mut chunk) {
            Ok(0) => return false,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(_) => thread::yield_now(),
        }
        assert!(Instant::now() < end, "in vain");
        true
    };
    while link.unsent() || bytes.len() < body.len() {
        for event in hub.take_put_off() {
            link.progress(event).unwrap();
        }
        link.progress(Event::Out { peer: 1, stream: 0 }).unwrap();
        is_open(&mut bytes);
    }
    assert!(!hub.unsent());
    drop(link);
    while is_open(&mut bytes) {}
    bytes
}

/// Whoever is on the way sees the body, or not, and cannot alter a bit of what is protected.
#[test]
fn what_is_altered_on_its_way_names_its_sender() {
    for (protection, len, lends) in [
        (Protection::Off, 200_000, false),
        (Protection::Check, 200_000, true),
        (Protection::Check, 200_000, false),
        (Protection::Check, 8, false),
        (Protection::Authenticate, 200_000, true),
        (Protection::Authenticate, 8, false),
        (Protection::Encrypt, 200_000, false),
        (Protection::Encrypt, 200_000, true),
        (Protection::Encrypt, 8, false),
    ] {
        let (header, body) = sample(2, 1, len);
        let [ours, theirs] = Guard::pair(protection).unwrap();
        let bytes = sent(ours, header, &body, lends);
        let shown = bytes.windows(8).any(|part| part == &body[len - 8..]);
        assert_eq!(shown, protection != Protection::Encrypt);
        let (links, near) = rank_and_guarded_wire(theirs);
        let send = |bytes: &[u8]| -> Result<(), (usize, Error)> {
            let (mut at, end) = (0, Instant::now() + LONG);
            while at < bytes.len() {
                at += tcp::send(&near, &[IoSlice::new(&bytes[at..])]).unwrap_or(0);
                links.progress()?;
                assert!(Instant::now() < end, "in vain");
            }
            Ok(())
        };
        if protection == Protection::Off {
            send(&bytes).map_err(|(_, e)| e).unwrap();
            let link = links.from(1).unwrap().unwrap();
            let message = until(&links, || link.peek(2).unwrap());
            assert!((message.header, bytes_of(&message.body.here().unwrap())) == (header, body));
            continue;
        }
        let mut bytes = bytes;
        let at = bytes.len() - 20;
        bytes[at] ^= 0x10;
        let mut outcome = send(&bytes);
        let end = Instant::now() + LONG;
        while outcome.is_ok() {
            assert!(Instant::now() < end, "in vain");
            outcome = links.progress();
        }
        match outcome {
            Err((1, Error::Failed(Cause::Broken { rank: 1, what }))) => assert_eq!(what, ALTERED),
            other => panic!("{other:?}"),
        }
        assert!(links.from(1).unwrap().unwrap().peek(2).unwrap().is_none());
    }
}

#[test]
fn connections_of_other_versions_are_refused() {
    let parcel = |bytes: Vec<u8>| Parcel {
        bytes,
        ..Parcel::default()
    };
    let mut other = frame::hello(0, 1);
    other[8] ^= 1;
    for bytes in [frame::hello(0, 1), other] {
        match Arrival::of(3, parcel(bytes)) {
            Err(Error::Failed(Cause::Broken { rank: 3, .. })) => {}
            other => panic!("{:?}", other.err()),
        }
    }
}
