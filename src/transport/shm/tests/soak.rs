//! Two threads, and two processes, that send and receive as they like.

use super::*;
use crate::net::Protection;
use crate::transport::{
    conformance::lengths,
    inproc::{self, Letterbox},
};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::{
    io::{IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, OwnedFd},
    process, thread,
    time::Duration,
};

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
                    room.copy_out_from(&Region::of(&body), random.bool());
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
    for seed in 0..5 {
        // With fences on both sides, on one, and as bells are made.
        let bells = match seed {
            0 => [Bell::with(false), Bell::with(false)],
            1 => [Bell::with(false), Bell::new()],
            _ => [Bell::new(), Bell::new()],
        };
        let links = inproc::join(
            bells.into_iter().collect::<Result<_, _>>().unwrap(),
            Protection::Off,
        );
        thread::scope(|scope| {
            for (rank, links) in links.into_iter().enumerate() {
                scope.spawn(move || {
                    // With deep lanes, and with shallow ones.
                    let links = if seed % 2 == 0 {
                        links.of_processor(false)
                    } else {
                        links
                    };
                    soak(&links, rank, seed);
                });
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
        .args([
            "--exact",
            "transport::shm::tests::soak::two_processes",
            "--nocapture",
        ])
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
            Ok(Some(Parcel {
                bytes,
                fds,
                guard: None,
            }))
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
    (got.bytes > 0).then_some(Parcel {
        bytes,
        fds,
        guard: None,
    })
}
