//! What is special about ranks joined by TCP. `tests/communicator.rs` runs over it as well, with `CCL_TRANSPORT=tcp`.

mod common;

use ccl::{Collective, Config, Op, UniqueId, algorithms};
use common::{config, with_ranks};
use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{Ipv6Addr, Shutdown, TcpStream},
    os::{linux::net::SocketAddrExt, unix::net::SocketAddr, unix::net::UnixStream},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

fn over(transport: &str, algorithm: Option<&str>) -> Config {
    let mut config = config();
    config.transport = Some(transport.to_owned());
    config.algorithm = algorithm.map(str::to_owned);
    config
}

#[test]
fn shared_memory_and_tcp_give_the_same_bits() {
    let algorithms: Vec<_> = algorithms(Collective::AllReduce).map(|(name, _)| name).collect();
    for algorithm in algorithms {
        for ranks in [2, 3, 5] {
            let bits = |transport| {
                with_ranks(ranks, &over(transport, Some(algorithm)), |comm| {
                    assert_eq!(comm.transport(), transport);
                    let mut all = Vec::new();
                    for len in [1, 7, 1000, 70_001] {
                        let value = |i: usize| ((i * 37 + comm.rank() * 101) as f32).sin() * 1e3;
                        let mut data: Vec<f32> = (0..len).map(value).collect();
                        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
                        all.extend(data.into_iter().map(f32::to_bits));
                    }
                    all
                })
            };
            let shm = bits("shm");
            assert!(shm == bits("tcp"), "{algorithm} among {ranks}");
            assert!(shm.iter().all(|bits| bits == &shm[0]));
        }
    }
}

#[test]
fn a_rank_that_sleeps_is_woken_by_what_comes() {
    with_ranks(3, &over("tcp", None), |comm| {
        for round in 0..6 {
            if round % 3 == comm.rank() {
                thread::sleep(Duration::from_millis(60)); // the others sleep by then
            }
            let mut data = [1u32; 100_000];
            comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
            assert!(data.iter().all(|&sum| sum == 3));
        }
    });
}

#[test]
fn a_rank_may_leave_at_once_after_its_last_call() {
    // The root's messages are under way when it has gone.
    for len in [1, 200_000] {
        with_ranks(4, &over("tcp", None), |comm| {
            let mut data = vec![comm.rank() as u64 + 1; len];
            comm.broadcast_in_place(&mut data, 2).unwrap();
            assert!(data.iter().all(|&value| value == 3));
        });
    }
}

#[test]
fn a_transport_must_be_the_same_on_all_ranks() {
    let id = UniqueId::new().unwrap();
    let errors: Vec<String> = thread::scope(|scope| {
        let ranks = ["shm", "tcp"].into_iter().enumerate().map(|(rank, transport)| {
            let (id, config) = (&id, over(transport, None));
            scope.spawn(move || {
                ccl::Communicator::init(2, id, rank, &config)
                    .unwrap_err()
                    .to_string()
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert_eq!(errors[0], errors[1]);
    assert!(
        errors[0].contains("\"shm\" on rank 0") && errors[0].contains("\"tcp\" on rank 1"),
        "{errors:?}"
    );
}

#[test]
fn a_local_id_is_enough_for_ranks_of_one_host() {
    let id = UniqueId::local().unwrap();
    assert!(!format!("{id:?}").contains("tcp"), "{id:?}");
    thread::scope(|scope| {
        for rank in 0..3 {
            let (id, config) = (&id, over("tcp", None));
            scope.spawn(move || {
                let comm = ccl::Communicator::init(3, id, rank, &config).unwrap();
                let mut data = [rank as i32];
                comm.all_reduce_in_place(&mut data, Op::Max).unwrap();
                assert_eq!(data, [2]);
            });
        }
    });
}

#[test]
fn strangers_at_every_listening_socket_disturb_nobody() {
    let (stop, met) = (AtomicBool::new(false), AtomicBool::new(false));
    thread::scope(|scope| {
        for seed in 0..3 {
            let (stop, met) = (&stop, &met);
            scope.spawn(move || bother(seed, stop, met));
        }
        for _ in 0..5 {
            with_ranks(3, &over("tcp", None), |comm| {
                for _ in 0..100 {
                    let mut data = vec![1u16; 5000];
                    comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
                    assert!(data.iter().all(|&sum| sum == 3));
                }
            });
        }
        stop.store(true, Relaxed);
    });
    assert!(met.load(Relaxed), "the strangers found nobody to talk to");
}

/// Connects to all listening sockets of this process, over and over, and writes random bytes.
fn bother(seed: u64, stop: &AtomicBool, met: &AtomicBool) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut held = Vec::new();
    while !stop.load(Relaxed) {
        for socket in listening() {
            let Ok(mut stream) = socket.dial() else { continue };
            met.store(true, Relaxed);
            let bytes: Vec<u8> = (0..random.usize(0..300)).map(|_| random.u8(..)).collect();
            let _ = stream.write_all(&bytes);
            held.push(stream);
        }
        while held.len() > 20 {
            held.remove(0);
        }
    }
}

enum Listening {
    Tcp(u16),
    Abstract(String),
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

impl Listening {
    fn dial(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match self {
            Listening::Tcp(port) => Box::new(
                TcpStream::connect((Ipv6Addr::LOCALHOST, *port))
                    .or_else(|_| TcpStream::connect(("127.0.0.1", *port)))?,
            ),
            Listening::Abstract(name) => {
                let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
                stream.set_nonblocking(true)?;
                Box::new(stream)
            }
        })
    }
}

/// This process's listening sockets: its descriptors' inodes, looked up in the kernel's lists.
fn listening() -> Vec<Listening> {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let inodes: BTreeSet<String> = (links.flatten())
        .filter_map(|entry| fs::read_link(entry.path()).ok()?.to_str().map(str::to_owned))
        .filter_map(|link| Some(link.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let mut found = Vec::new();
    for table in ["/proc/self/net/tcp", "/proc/self/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let port = words[1].rsplit(':').next().unwrap();
            if words[3] == "0A" && inodes.contains(words[9]) {
                found.push(Listening::Tcp(u16::from_str_radix(port, 16).unwrap()));
            }
        }
    }
    for line in fs::read_to_string("/proc/self/net/unix").unwrap().lines().skip(1) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let accepts = words[3] == "00010000";
        if let [.., inode, name] = words[..]
            && accepts
            && inodes.contains(inode)
            && let Some(name) = name.strip_prefix('@')
        {
            found.push(Listening::Abstract(name.to_owned()));
        }
    }
    found
}

#[test]
fn a_half_open_connection_is_sent_away() {
    let id = UniqueId::new().unwrap();
    let Some(Listening::Tcp(port)) = listening().into_iter().find(|l| matches!(l, Listening::Tcp(_))) else {
        assert!(
            !format!("{id:?}").contains("tcp"),
            "a host without a network has no port"
        );
        return;
    };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"ccl").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    assert_eq!(stream.read(&mut [0; 8]).unwrap(), 0, "no answer, and the end");
}

#[test]
fn a_rank_that_has_left_needs_no_credits() {
    // More messages than a receiver takes in without giving credits back.
    with_ranks(2, &over("tcp", None), |comm| {
        if comm.rank() == 1 {
            thread::sleep(Duration::from_millis(300)); // the other one has left by then
        }
        for round in 0..8u32 {
            let mut data = [round + comm.rank() as u32];
            comm.broadcast_in_place(&mut data, 0).unwrap();
            assert_eq!(data, [round]);
        }
    });
}
