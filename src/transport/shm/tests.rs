//! What is particular to shared memory: the wrap of the numbers, broken peers, two threads, two processes.

use super::{layout::*, *};

use crate::{
    mem::{SharedMemory, shared},
    net::Parcel,
    transport::{
        Body, LANES, Link as _, Reach, Wires as _,
        conformance::{bytes_of, lengths, recv, sample, send, try_send},
        inproc::{self, Letterbox},
        links::{Links, Opener},
    },
    types::Cause,
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    process,
    sync::{Arc, atomic::Ordering::*},
    thread,
    time::Duration,
};

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
    let (opening, mut parcel) = Opening::starting_at(start, &bells[0], ways).unwrap();
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

#[test]
fn numbers_wrap() {
    // The flags come round at 2^31, the counts at 2^32; neither start is a multiple of the depth.
    for start in [u32::MAX - 9, (1 << 31) - 7, u32::MAX, 1 << 31] {
        let (out, into) = pair(start);
        for lane in 0..LANES {
            assert!(into.peek(lane).unwrap().is_none());
            for turn in 0..20 {
                for number in 0..DEPTH as u32 {
                    let (header, body) = sample(lane, turn + number, 200 * number as usize);
                    send(&out, lane, header, &body);
                }
                assert!(!try_send(&out, lane, [0; 4], &[]));
                for number in 0..DEPTH as u32 {
                    assert_eq!(
                        recv(&into, lane),
                        sample(lane, turn + number, 200 * number as usize)
                    );
                }
                assert!(into.peek(lane).unwrap().is_none());
            }
        }
    }
}

#[test]
fn small_messages_take_one_line_and_lie_apart() {
    let (out, _into) = pair(0);
    let at = |lane, len| out.reserve(lane, len).unwrap().unwrap().as_ptr().addr();
    let entry = |lane: usize| &raw const out.outbound().segment.entries[lane][0] as usize;
    for lane in 0..LANES {
        assert_eq!(at(lane, FIRST_LINE) + FIRST_LINE, entry(lane) + 64);
        assert_eq!(at(lane, INLINE) + INLINE, entry(lane) + 128);
        assert!(!(entry(0)..entry(LANES - 1) + 128 * DEPTH).contains(&at(lane, INLINE + 1)));
    }
}

#[test]
fn a_length_that_does_not_fit_is_refused() {
    for len in [MAX_MESSAGE as u32 + 1, MAPPED - 1] {
        let (out, into) = pair(0);
        send(&out, 3, [0; 4], &[1, 2, 3]);
        assert!(into.peek(3).unwrap().is_some());
        out.outbound().segment.entries[3][0].len.store(len, SeqCst);
        let (rank, what) = blamed(into.peek(3));
        assert_eq!(rank, 0);
        assert!(what.contains(&len.to_string()), "{what}");
        assert!(into.peek(2).unwrap().is_none());
    }
    // A length that fits gives wrong bytes, never a fault.
    let (out, into) = pair(0);
    send(&out, 7, [0; 4], &[1]);
    out.outbound().segment.entries[7][0]
        .len
        .store(MAX_MESSAGE as u32, SeqCst);
    assert_eq!(recv(&into, 7).1.len(), MAX_MESSAGE);
}

#[test]
fn a_place_that_does_not_fit_is_refused() {
    for at in [pool::BYTES as u32 - 499, OWN - 1, u32::MAX] {
        let (out, into) = pair(0);
        send(&out, 1, [0; 4], &[7; 500]);
        out.outbound().segment.entries[1][0].set_at(at);
        let (rank, what) = blamed(into.peek(1));
        assert_eq!(rank, 0);
        assert!(what.contains(&format!("500 bytes at {at}")), "{what}");
    }
}

/// However much the other lanes have in flight, each can send a message; and all comes as it was sent.
#[test]
fn no_lane_waits_for_anothers_bodies() {
    let lease = Arc::default();
    let (out, into) = pair_with(0, &lease);
    // All but a few pages are held by other links.
    let mut held: Vec<_> = std::iter::from_fn(|| lease.take(MAX_MESSAGE)).collect();
    held.drain(..5).for_each(|room| lease.give(room));
    for turn in 0..20 {
        let body = |lane: usize, k: u32| sample(lane, 10 * turn + k, MAX_MESSAGE - lane);
        let mut sent = [0; LANES];
        for lane in (0..LANES).cycle().skip(turn as usize).take(LANES * DEPTH) {
            let (header, body) = body(lane, sent[lane]);
            sent[lane] += u32::from(try_send(&out, lane, header, &body));
        }
        assert!(sent.iter().all(|&sent| sent > 0), "{sent:?}");
        assert!(sent.contains(&1), "{sent:?}");
        for (lane, &sent) in sent.iter().enumerate() {
            for k in 0..sent {
                assert_eq!(recv(&into, lane), body(lane, k));
            }
        }
    }
}

/// A body that several receivers read is there until the last of them has.
#[test]
fn one_body_for_several_receivers() {
    let lease = Arc::default();
    let links: Vec<_> = (0..3).map(|_| pair_with(0, &lease)).collect();
    let lens = [0, 8, INLINE, INLINE + 1, 4096, MAX_MESSAGE];
    for (turn, &len) in (0..).zip(lens.iter().cycle().take(60)) {
        let (lane, (header, body)) = (turn as usize % LANES, sample(turn as usize % LANES, turn, len));
        let (first, _) = &links[0];
        first.reserve(lane, len).unwrap().unwrap();
        for (other, _) in &links[1..] {
            // Twice, as who tried and could not go on does.
            for _ in 0..2 {
                let shares = other.reserve_with(first, lane).unwrap().unwrap();
                assert_eq!(shares, len > INLINE, "{len}");
                if !shares {
                    let room = other.reserve(lane, len).unwrap().unwrap();
                    room.copy_from(&Region::of(&body));
                }
            }
        }
        let room = first.reserve(lane, len).unwrap().unwrap();
        room.copy_from(&Region::of(&body));
        links.iter().for_each(|(out, _)| out.commit(lane, header));
        let mut order = [0, 1, 2];
        fastrand::Rng::with_seed(turn.into()).shuffle(&mut order);
        for k in order {
            let (out, into) = &links[k];
            assert_eq!(recv(into, lane), (header, body.clone()));
            // It knows at once, and uses the room again if it may.
            (0..LANES).for_each(|lane| drop(out.outbound().has_credit(lane)));
            let (header, other) = sample(lane, turn + 1000, len);
            send(out, lane, header, &other);
            assert_eq!(recv(into, lane), (header, other));
        }
    }
}

/// What a communicator gives back others use, but for what is still to be read.
#[test]
fn memory_that_is_given_back_is_used_again() {
    let leases: Vec<Arc<Lease>> = (0..3).map(|_| Arc::default()).collect();
    let links: Vec<_> = leases.iter().map(|lease| pair_with(0, lease)).collect();
    let mut random = fastrand::Rng::with_seed(9);
    let mut unread: Vec<Vec<_>> = vec![Vec::new(); 3];
    for turn in 0..2000 {
        let (k, len) = (random.usize(..3), random.usize(INLINE + 1..=MAX_MESSAGE));
        let (lane, (header, body)) = (turn % LANES, sample(turn % LANES, turn as u32, len));
        let (out, into) = &links[k];
        if try_send(out, lane, header, &body) {
            unread[k].push((lane, (header, body)));
        }
        let read = random.usize(..=unread[k].len());
        for (lane, message) in unread[k].drain(..read) {
            assert_eq!(recv(into, lane), message, "turn {turn}");
        }
        if random.bool() {
            out.leave();
            leases[k].give_back();
        }
    }
}

/// What a rank has released is known from its next message, without a look at the count.
#[test]
fn acknowledgements_travel_with_messages() {
    let bells = [Bell::new().unwrap(), Bell::new().unwrap()];
    let links = [super::Link::default(), super::Link::default()];
    for (from, to) in [(0, 1), (1, 0)] {
        let (opening, parcel) = Opening::new(&bells[from], NO_WAY).unwrap();
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
        for k in 0..DEPTH as u32 {
            send(one, lane, [k; 4], &[1; 300]);
        }
        assert!(!try_send(one, lane, [0; 4], &[]));
        (0..DEPTH).for_each(|_| drop(recv(other, lane)));
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
        out.outbound().segment.entries[0][0].flag.store(flag, SeqCst);
        assert!(into.peek(0).unwrap().is_none());
    }
}

#[test]
fn credits_that_were_not_earned_are_refused() {
    for claimed in [5, 6, 1000, u32::MAX, 1 << 31] {
        let (out, into) = pair(0);
        for number in 0..DEPTH as u32 {
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
    for number in 0..DEPTH as u32 + 2 {
        send(&out, 0, [number; 4], &[]);
        recv(&into, 0);
    }
    for number in 0..2 {
        send(&out, 0, [number; 4], &[]);
    }
    into.inbound().segment.released.0[0].store(1, SeqCst);
    assert_eq!(
        blamed((0..DEPTH).try_for_each(|_| {
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
        let (_opening, mut parcel) = Opening::new(&ours, ATTACHED).unwrap();
        change(&mut parcel);
        let (rank, what) = blamed(Inbound::attach(5, &parcel, &ours, ATTACHED));
        assert_eq!(rank, 5);
        what
    };
    let other_layout: [&dyn Fn(&mut Parcel); 7] = [
        &|parcel| parcel.bytes.clear(),
        &|parcel| parcel.bytes.push(0),
        &|parcel| parcel.bytes.truncate(hello().len() + 7),
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
    let (opening, _parcel) = Opening::new(&ours, ATTACHED).unwrap();
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
    let segment = || Opening::new(&bell, DIRECT).unwrap().1;
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

/// Sends `COUNT` messages on each lane and receives as many, both at once, with yields and sleeps where the seed says.
/// Every body is checked. A sleep that nobody ends fails the test.
fn soak(links: &Links, me: usize, seed: u64) {
    const COUNT: u32 = 600;
    let peer = 1 - me;
    let content = |from: usize, lane: usize, number: u32| {
        let mut random = fastrand::Rng::with_seed(seed ^ u64::from(number) << 8 ^ (from << 4 | lane) as u64);
        let edges = lengths(MAX_MESSAGE);
        let len = match random.u8(..) {
            0..8 => *random.choice(&edges).unwrap(),
            8..200 => random.usize(..=2 * INLINE),
            _ => random.usize(..1000),
        };
        sample(lane, number ^ seed as u32, len)
    };
    let mut random = fastrand::Rng::with_seed(seed.wrapping_mul(2) + me as u64);
    let (mut sent, mut received) = ([0; LANES], [0; LANES]);
    // One go over the lanes, leaving out some of them unless it must be `thorough`. Whether anything moved.
    let mut pump = |random: &mut fastrand::Rng, thorough: bool| {
        let mut moved = false;
        for lane in 0..LANES {
            if sent[lane] < COUNT && (thorough || random.bool()) {
                let (header, body) = content(me, lane, sent[lane]);
                let link = links.to(peer).unwrap().unwrap();
                if let Some(room) = link.reserve(lane, body.len()).unwrap() {
                    room.copy_from(&Region::of(&body));
                    link.commit(lane, header);
                    sent[lane] += 1;
                    moved = true;
                }
            }
            let inbound = links.from(peer).unwrap().filter(|_| thorough || random.bool());
            if let Some(link) = inbound
                && let Some(message) = link.peek(lane).unwrap()
            {
                let got = (message.header, bytes_of(&message.body.here().unwrap()));
                assert_eq!(
                    got,
                    content(peer, lane, received[lane]),
                    "lane {lane} of rank {me}, seed {seed}"
                );
                link.release(lane);
                received[lane] += 1;
                moved = true;
            }
        }
        (moved, sent.iter().chain(&received).all(|&count| count == COUNT))
    };
    loop {
        let (moved, done) = pump(&mut random, false);
        if done {
            break;
        }
        if !moved && random.u8(..) < 64 {
            thread::yield_now();
        } else if !moved {
            links.arm().unwrap();
            let mut stuck = || pump(&mut random, true) == (false, false);
            let looked = stuck();
            if looked {
                links.doze();
            }
            if looked && stuck() {
                assert!(
                    links.sleep(Duration::from_secs(60)),
                    "rank {me} was not woken, seed {seed}"
                );
            }
            links.disarm();
        }
    }
}

#[test]
fn two_threads() {
    for seed in 0..4 {
        // With fences on both sides, on one, and as bells are made.
        let bells = match seed {
            0 => [Bell::with(false), Bell::with(false)],
            1 => [Bell::with(false), Bell::new()],
            _ => [Bell::new(), Bell::new()],
        };
        let links = inproc::join(bells.into_iter().collect::<Result<_, _>>().unwrap());
        thread::scope(|scope| {
            for (rank, links) in links.into_iter().enumerate() {
                scope.spawn(move || soak(&links, rank, seed));
            }
        });
    }
}

/// The test starts itself once more as the other process, with a socket to it for its standard input.
#[test]
fn two_processes() {
    const CHILD: &str = "CCL_TEST_SHM_CHILD";
    const SEED: u64 = 11;
    if std::env::var_os(CHILD).is_some() {
        let socket = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
        soak(&links_over(socket, 1), 1, SEED);
        return;
    }
    let (flags, kind) = (SocketFlags::CLOEXEC, SocketType::SEQPACKET);
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, kind, flags, None).unwrap();
    let mut child = process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "transport::shm::tests::two_processes", "--nocapture"])
        .env(CHILD, "1")
        .stdin(theirs)
        .stdout(process::Stdio::null())
        .spawn()
        .unwrap();
    soak(&links_over(ours, 0), 0, SEED);
    assert!(child.wait().unwrap().success());
}

/// Links between two processes, of which each has one end of `socket`. A thread does what the control thread will.
fn links_over(socket: OwnedFd, rank: usize) -> Links {
    struct Socket {
        fd: Arc<OwnedFd>,
        welcome: Parcel,
        letterbox: Arc<Letterbox>,
    }
    impl Opener for Socket {
        fn open(&self, _peer: usize, parcel: Parcel) -> Result<Option<Parcel>, Error> {
            put(&self.fd, &parcel);
            let fds = self
                .welcome
                .fds
                .iter()
                .map(|fd| fd.try_clone().unwrap())
                .collect();
            let bytes = self.welcome.bytes.clone();
            Ok(Some(Parcel { bytes, fds }))
        }
        fn arrivals(&self) -> Vec<(usize, Parcel)> {
            self.letterbox.empty()
        }
    }

    let bell = Bell::new().unwrap();
    put(&socket, &bell.welcome().unwrap());
    let welcome = get(&socket).expect("the peer's welcome");
    let (fd, letterbox) = (Arc::new(socket), Arc::new(Letterbox::new(bell.clone())));
    let opener = Socket {
        fd: fd.clone(),
        welcome,
        letterbox: letterbox.clone(),
    };
    thread::spawn(move || {
        while let Some(parcel) = get(&fd) {
            letterbox.put(1 - rank, parcel);
        }
    });
    Links::new(rank, 2, Box::new(opener), bell)
}

fn put(socket: &OwnedFd, parcel: &Parcel) {
    let fds: Vec<_> = parcel.fds.iter().map(AsFd::as_fd).collect();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Parcel::MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    let bytes = [IoSlice::new(&parcel.bytes)];
    rustix::net::sendmsg(socket, &bytes, &mut control, SendFlags::NOSIGNAL).unwrap();
}

/// The next parcel; `None` when the other side has gone.
fn get(socket: &OwnedFd) -> Option<Parcel> {
    let mut bytes = vec![0; Parcel::MAX_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(Parcel::MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let got = rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC).unwrap();
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(list) = message {
            fds.extend(list);
        }
    }
    bytes.truncate(got.bytes);
    (got.bytes > 0).then_some(Parcel { bytes, fds })
}

/// Takes the oldest message of lane 0.
fn take(into: &super::Link, len: usize) -> Option<Vec<u8>> {
    let mut body = vec![0; len];
    let taken = into.take(0, &Region::of_mut(&mut body)).unwrap();
    taken.then_some(body)
}

/// Whether this process may read its own memory, without which there are no offers.
fn attaches(out: &super::Link) -> bool {
    let offers = out.reach(&Region::of(&[0u8])) == Reach::Taking;
    if !offers {
        println!("skipped: memory cannot be read here");
    }
    offers
}

#[test]
fn offers_go_on_when_numbers_wrap() {
    for start in [u32::MAX - 9, (1 << 31) - 7, u32::MAX, 1 << 31] {
        let (out, into) = pair(start);
        if !attaches(&out) {
            return;
        }
        for number in 0..20 {
            let (header, mut body) = sample(0, number, 5000);
            let body = Region::of_mut(&mut body);
            let offer = || out.offer(0, header, body).unwrap();
            let tickets: Vec<_> = (0..DEPTH).map(|_| offer().unwrap()).collect();
            assert!(offer().is_none(), "a credit too many");
            for &ticket in &tickets {
                assert!(!out.taken(0, ticket));
                assert_eq!(recv(&into, 0), (header, bytes_of(&body)));
                assert!(out.taken(0, ticket));
            }
        }
    }
}

#[test]
fn what_was_withdrawn_is_not_taken() {
    let (out, into) = pair(0);
    if !attaches(&out) {
        return;
    }
    let mut data = [1u8, 2, 3];
    let offered = Region::of_mut(&mut data);
    out.offer(0, [7; 4], offered).unwrap().unwrap();
    send(&out, 1, [8; 4], &[9]);
    assert_eq!(take(&into, 3), Some(vec![1, 2, 3]));
    out.withdraw();
    offered.copy_from(&Region::of(&[4u8, 5, 6]));
    assert_eq!(take(&into, 3), None);
    assert_eq!(recv(&into, 1), ([8; 4], vec![9]), "what was copied is there");
}

#[test]
fn memory_whose_owner_has_gone_is_not_taken() {
    let (out, into) = pair(0);
    if !attaches(&out) {
        return;
    }
    let data = [1u8, 2, 3];
    out.offer(0, [7; 4], Region::of(&data)).unwrap().unwrap();
    assert_eq!(take(&into, 3), Some(vec![1, 2, 3]));
    drop(out);
    assert_eq!(take(&into, 3), None);
}

#[test]
fn memory_that_cannot_be_read_is_not_offered() {
    let bells = [Bell::new().unwrap(), Bell::new().unwrap()];
    let connected = |lends: bool, may: bool, spoil: bool| {
        let ways = |attach| Ways { attach, ..NO_WAY };
        let (opening, mut parcel) = Opening::new(&bells[0], ways(lends)).unwrap();
        if spoil {
            *parcel.bytes.last_mut().unwrap() ^= 1;
        }
        let half = Inbound::attach(0, &parcel, &bells[1], ways(may)).unwrap();
        let how = half.long_messages();
        let (out, into) = (super::Link::default(), super::Link::default());
        into.set_inbound(half);
        let welcome = bells[1].welcome().unwrap();
        out.set_outbound(
            opening
                .connected(1, &welcome, &bells[0], &Arc::default())
                .unwrap(),
        );
        (out, into, how)
    };
    for (lends, may, spoil) in [(false, true, false), (true, false, false), (true, true, true)] {
        let (out, into, how) = connected(lends, may, spoil);
        assert!(how.starts_with("copied twice: "), "{how}");
        assert_eq!(how.contains("CCL_CMA=off"), !spoil, "{how}");
        assert_eq!(out.reach(&Region::of(&[1u8])), Reach::No);
        assert!(out.offer(0, [0; 4], Region::of(&[1u8])).is_err());
        send(&out, 0, [1; 4], &[2; 5000]);
        assert_eq!(recv(&into, 0), ([1; 4], vec![2; 5000]));
        // A peer that offers all the same.
        send(&out, 0, [1; 4], &[3; 50]);
        let entry = &out.outbound().segment.entries[0][1];
        entry.len.store(ELSEWHERE | 50, SeqCst);
        let (rank, what) = blamed(into.take(0, &Region::of_mut(&mut [0u8; 50])));
        assert!(rank == 0 && what.contains("cannot be read"), "{what}");
    }
    // An address at which nothing is.
    let (out, into, _) = connected(true, true, false);
    if attaches(&out) {
        send(&out, 0, [1; 4], &[0; 50]);
        out.outbound().segment.entries[0][0]
            .len
            .store(ELSEWHERE | 50, SeqCst);
        let (rank, what) = blamed(into.take(0, &Region::of_mut(&mut [0u8; 50])));
        assert!(rank == 0 && what.contains("could not be read"), "{what}");
    }
}

#[test]
fn threads_of_one_process_read_each_others_memory_while_it_is_theirs() {
    let (out, into) = pair_by(0, DIRECT, &Arc::default(), |_| {});
    let mut data = [1u8, 2, 3];
    let offered = Region::of_mut(&mut data);
    assert_eq!(out.reach(&offered), Reach::Reading);
    let ticket = out.offer(0, [7; 4], offered).unwrap().unwrap();
    assert!(matches!(into.peek(0).unwrap().unwrap().body, Body::Lent(3)));
    let pinned = into.pin(0, 3).unwrap().unwrap();
    assert_eq!(bytes_of(&pinned.body()), [1, 2, 3]);
    assert!(pinned.end() && !out.taken(0, ticket));
    into.release(0);
    assert!(out.taken(0, ticket));
    out.offer(0, [7; 4], offered).unwrap().unwrap();
    out.withdraw();
    assert!(into.pin(0, 3).unwrap().is_none());
    assert_eq!(take(&into, 3), None);
}

/// Of two threads one gives up its memory, again and again, while the other reads it: what was read is what was offered.
#[test]
fn who_withdraws_waits_for_those_who_read() {
    for seed in 0..200 {
        let (out, into) = pair_by(0, DIRECT, &Arc::default(), |_| {});
        let mut data = vec![7u8; 20_000];
        let offered = Region::of_mut(&mut data);
        out.offer(0, [7; 4], offered).unwrap().unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut copy = vec![0u8; 20_000];
                let taken = (0..).find_map(|_| {
                    let taken = into.take(0, &Region::of_mut(&mut copy)).unwrap();
                    assert!(!taken || copy.iter().all(|&byte| byte == 7), "seed {seed}");
                    (!taken).then_some(())
                });
                taken.is_some()
            });
            (0..fastrand::Rng::with_seed(seed).u32(..2000)).for_each(|_| std::hint::spin_loop());
            out.withdraw();
            offered.copy_from(&Region::of(&[9u8; 20_000]));
            assert!(reader.join().unwrap());
        });
    }
}

/// As between two processes: a rank knows no thread of its own process by this token.
fn strangers() -> (super::Link, super::Link) {
    pair_by(0, DIRECT, &Arc::default(), |parcel| {
        parcel.bytes[hello().len()] ^= 1
    })
}

/// Hands over the memory in which `data` lies; whether there was something to hand over.
fn hand_over(out: &super::Link, into: &mut super::Link, data: &[u8]) -> bool {
    let memory = shared::find(&Region::of(data)).unwrap();
    let parcel = out.hand_over(&memory).unwrap();
    let mapping = parcel.map(|parcel| Mapping::of(0, &parcel).unwrap().unwrap());
    mapping.is_some_and(|mapping| into.admit(mapping))
}

#[test]
fn memory_that_was_handed_over_is_read_where_it_lies() {
    let (out, mut into) = strangers();
    let mut memory = SharedMemory::<u8>::new(20_000).unwrap();
    memory[9_990..].fill(5);
    let is_read = |body: &[u8]| out.reach(&Region::of(body)) == Reach::Reading;
    assert!(!is_read(&memory) && !into.may_lend());
    let before = into.mapped();
    assert!(hand_over(&out, &mut into, &memory));
    assert!(is_read(&memory) && into.may_lend() && into.mapped() >= before + 20_000);
    assert!(!hand_over(&out, &mut into, &memory[7..9]), "once is enough");
    assert!(!is_read(&[1, 2, 3]));
    for part in [9_990..9_993, 0..1, 19_000..20_000, 9_000..15_000, 5..5] {
        let wanted = ([7; 4], memory[part.clone()].to_vec());
        out.offer(3, [7; 4], Region::of(&memory[part])).unwrap().unwrap();
        assert!(matches!(into.peek(3).unwrap().unwrap().body, Body::Lent(_)));
        assert_eq!(recv(&into, 3), wanted);
    }
    // What is written after a withdrawal is not taken for the message, be it read before or after.
    out.offer(3, [7; 4], Region::of(&memory[..3])).unwrap().unwrap();
    let pinned = into.pin(3, 3).unwrap().unwrap();
    out.withdraw();
    assert!(!pinned.end());
    assert!(into.pin(3, 3).unwrap().is_none());
}

#[test]
fn places_are_used_again_for_what_comes_after_what_was_freed() {
    let (out, mut into) = strangers();
    let mut random = fastrand::Rng::with_seed(9);
    let mut kept: Vec<SharedMemory<u8>> = Vec::new();
    for turn in 0..200 {
        let mut memory = SharedMemory::new(random.usize(1..10_000)).unwrap();
        memory.fill(turn as u8);
        let had_room = kept.len() < MAPPINGS;
        assert_eq!(hand_over(&out, &mut into, &memory), had_room, "turn {turn}");
        kept.push(memory);
        if kept.len() > MAPPINGS {
            kept.swap_remove(random.usize(..kept.len()));
        }
        let read = kept
            .iter()
            .filter(|one| out.reach(&Region::of(one)) == Reach::Reading);
        for memory in read {
            out.offer(0, [1; 4], Region::of(memory)).unwrap().unwrap();
            assert_eq!(recv(&into, 0).1, memory[..]);
        }
        // Of what was not handed over at once some may be in time.
        if turn % 7 == 0 {
            kept.truncate(random.usize(..kept.len()));
        }
        for memory in &kept {
            hand_over(&out, &mut into, memory);
        }
    }
}

#[test]
fn only_some_memory_is_on_its_way_at_a_time() {
    let (out, mut into) = strangers();
    let all: Vec<_> = (0..10).map(|_| SharedMemory::<u8>::new(1).unwrap()).collect();
    let parcels = || {
        let memory = all.iter().map(|one| shared::find(&Region::of(one)).unwrap());
        memory
            .filter_map(|memory| out.hand_over(&memory).unwrap())
            .collect()
    };
    let mut seen = 0;
    loop {
        let some: Vec<Parcel> = parcels();
        assert!(some.len() <= 4 && parcels().is_empty());
        seen += some.len();
        if some.is_empty() {
            break;
        }
        for parcel in some {
            assert!(into.admit(Mapping::of(0, &parcel).unwrap().unwrap()));
        }
    }
    assert_eq!(seen, all.len());
}

#[test]
fn memory_that_is_not_what_it_says_is_refused() {
    let memory = SharedMemory::<u8>::new(5000).unwrap();
    let refused = |change: &dyn Fn(&mut Parcel)| {
        let (out, _into) = strangers();
        let memory = shared::find(&Region::of(&memory)).unwrap();
        let mut parcel = out.hand_over(&memory).unwrap().unwrap();
        change(&mut parcel);
        blamed(Mapping::of(4, &parcel))
    };
    let at = Mapping::HELLO.len();
    let strange: [&dyn Fn(&mut Parcel); 7] = [
        &|parcel| parcel.bytes.truncate(at + 9),
        &|parcel| parcel.bytes.push(0),
        &|parcel| parcel.fds.clear(),
        &|parcel| parcel.bytes[at] = MAPPINGS as u8,
        &|parcel| parcel.bytes[at + 4..at + 8].fill(0),
        &|parcel| parcel.bytes[at + 8..].fill(0),
        &|parcel| parcel.bytes[at + 8..].fill(0xff),
    ];
    for change in strange {
        assert_eq!(
            refused(change),
            (4, "it handed over memory in a way of its own".to_owned())
        );
    }
    let (rank, what) = refused(&|parcel| parcel.bytes[at + 8] ^= 1);
    assert!(rank == 4 && what.contains("bytes large instead of"), "{what}");
    let bell = Bell::new().unwrap();
    let (_, what) = refused(&|parcel| parcel.fds[0] = bell.descriptor().unwrap());
    assert!(what.contains("bytes large instead of"), "{what}");
}

#[test]
fn a_message_outside_of_what_was_handed_over_is_refused() {
    let memory = SharedMemory::<u8>::new(5000).unwrap();
    let size = 5000usize.next_multiple_of(rustix::param::page_size()) as u64;
    let number = shared::find(&Region::of(&memory)).unwrap().number();
    let lies: [(u64, usize, u32); 5] = [
        (size - 99, 0, number),
        (u64::MAX, 0, number),
        (0, 1, number),
        (0, usize::MAX >> 32, number),
        (0, 0, number.wrapping_add(1)),
    ];
    for (at, place, number) in lies {
        let (out, mut into) = strangers();
        assert!(hand_over(&out, &mut into, &memory));
        out.offer(0, [0; 4], Region::of(&memory[..100])).unwrap().unwrap();
        let entry = &out.outbound().segment.entries[0][0];
        entry.set_address(at);
        entry.set_mapping(place, number);
        let (rank, what) = blamed(into.pin(0, 100).map(|_| ()));
        assert!(
            rank == 0 && what.contains("which it has not handed over"),
            "{what}"
        );
    }
}
