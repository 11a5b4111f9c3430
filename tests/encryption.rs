//! Ranks whose traffic by TCP is encrypted, or authenticated.

mod common;

use ccl::{Communicator, Config, Op, UniqueId};
use common::{config, with_ranks};
use std::{
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// One test at a time, so that a capture need not keep up with the others.
static ALONE: Mutex<()> = Mutex::new(());
const MODES: [&str; 3] = ["off", "authenticate", "on"];

fn over_tcp(encryption: &str) -> Config {
    let mut config = config();
    config.transport = Some("tcp".to_owned());
    config.encryption = Some(encryption.to_owned());
    config
}

#[test]
fn calls_give_what_they_give_without() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut checked = over_tcp("off");
    checked.checksum = Some(true);
    let configs = MODES.map(over_tcp).into_iter().chain([checked]);
    let mut results = configs.map(|config| {
        with_ranks(3, &config, |comm| {
            let mut all = Vec::new();
            for len in [1, 1000, 70_001, 400_000] {
                let value = |i: usize| ((i * 37 + comm.rank() * 101) as f32).sin() * 1e3;
                let mut data: Vec<f32> = (0..len).map(value).collect();
                comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
                comm.broadcast_in_place(&mut data, 1).unwrap();
                all.extend(data.into_iter().map(f32::to_bits));
            }
            let half = comm.split(Some((comm.rank() % 2) as u32), 0, None).unwrap();
            let mut data = vec![comm.rank() as u32; 5000];
            half.unwrap().all_reduce_in_place(&mut data, Op::Max).unwrap();
            all.extend(data);
            for _ in 0..20 {
                comm.barrier().unwrap();
            }
            all
        })
    });
    let first = results.next();
    assert!(results.all(|result| Some(result) == first));
}

#[test]
fn a_setting_that_does_not_exist_or_differs_is_told() {
    let id = UniqueId::new().unwrap();
    let error = Communicator::init(2, &id, 0, &over_tcp("yes")).err().unwrap();
    assert!(error.to_string().contains("\"yes\" does not exist"), "{error}");
    thread::scope(|scope| {
        let rank = |rank: usize| {
            let id = &id;
            let config = over_tcp(["on", "authenticate"][rank]);
            scope.spawn(move || {
                Communicator::init(2, id, rank, &config)
                    .err()
                    .unwrap()
                    .to_string()
            })
        };
        let ranks = [0, 1].map(rank);
        for error in ranks.map(|rank| rank.join().unwrap()) {
            let wanted =
                "CCL_ENCRYPTION is \"on\" on rank 0 and \"authenticate\" on rank 1: give all ranks the same";
            let turned =
                "CCL_ENCRYPTION is \"authenticate\" on rank 1 and \"on\" on rank 0: give all ranks the same";
            assert!(error.contains(wanted) || error.contains(turned), "{error}");
        }
    });
}

#[test]
fn checksums_must_be_the_same_on_all_ranks() {
    let id = UniqueId::new().unwrap();
    thread::scope(|scope| {
        let rank = |rank: usize| {
            let (id, mut config) = (&id, over_tcp("off"));
            config.checksum = Some(rank == 1);
            scope.spawn(move || {
                Communicator::init(2, id, rank, &config)
                    .err()
                    .unwrap()
                    .to_string()
            })
        };
        for error in [0, 1].map(rank).map(|rank| rank.join().unwrap()) {
            let parts = ["CCL_CHECKSUM is ", "\"off\" on rank 0", "\"on\" on rank 1"];
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
    });
}

/// All that goes over the loopback device holds a vector's bytes, or does not.
#[test]
fn a_capture_shows_the_data_unless_they_are_encrypted() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for mode in MODES {
        // Eight bytes that nothing else on this machine sends.
        let value = fastrand::u64(1 << 60..);
        let pattern = [value.to_ne_bytes(); 3].concat();
        let wire = match capture() {
            Ok(wire) => wire,
            Err(why) => return println!("skipped: the loopback device cannot be captured: {why}"),
        };
        let (stop, seen) = (AtomicBool::new(false), Mutex::new((0u64, 0u64)));
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut packet = vec![0u8; 1 << 17];
                loop {
                    let is_last = stop.load(Relaxed); // what was sent before is here
                    match receive(&wire, &mut packet) {
                        Some(len) => {
                            let packet = &packet[..len];
                            let mut seen = seen.lock().unwrap();
                            seen.0 += 1;
                            seen.1 += u64::from(packet.windows(pattern.len()).any(|part| part == pattern));
                        }
                        None if is_last => break,
                        None => thread::sleep(Duration::from_millis(1)),
                    }
                }
            });
            with_ranks(2, &over_tcp(mode), |comm| {
                for len in [8, 4000, 100_000] {
                    let mut data = vec![if comm.rank() == 0 { value } else { 0 }; len];
                    comm.broadcast_in_place(&mut data, 0).unwrap();
                    assert!(data.iter().all(|&element| element == value));
                    comm.barrier().unwrap();
                    thread::sleep(Duration::from_millis(20));
                }
            });
            stop.store(true, Relaxed);
        });
        let (packets, shown) = *seen.lock().unwrap();
        assert!(packets > 0, "nothing was captured");
        assert_eq!(
            shown > 0,
            mode != "on",
            "{mode}: {shown} of {packets} packets show the data"
        );
    }
}

/// A socket that gets all packets of the loopback device; it takes the superuser.
fn capture() -> io::Result<OwnedFd> {
    let protocol = (libc::ETH_P_ALL as u16).to_be();
    // SAFETY: plain integers; what comes back is checked.
    let fd = unsafe {
        libc::socket(
            libc::AF_PACKET,
            libc::SOCK_RAW | libc::SOCK_CLOEXEC,
            protocol.into(),
        )
    };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a new descriptor, which nobody else knows.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros are an address; the name is a C string.
    let (mut at, lo) = unsafe {
        (
            std::mem::zeroed::<libc::sockaddr_ll>(),
            libc::if_nametoindex(c"lo".as_ptr()),
        )
    };
    at.sll_family = libc::AF_PACKET as u16;
    at.sll_protocol = protocol;
    at.sll_ifindex = lo as i32;
    let room: libc::c_int = 32 << 20;
    // SAFETY: the kernel reads `room` and `at`, of which it is told the sizes.
    let bound = unsafe {
        let size = size_of_val(&room) as u32;
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_RCVBUFFORCE,
            (&raw const room).cast(),
            size,
        );
        libc::bind(fd, (&raw const at).cast(), size_of_val(&at) as u32)
    };
    match bound {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

fn receive(socket: &OwnedFd, packet: &mut [u8]) -> Option<usize> {
    // SAFETY: the kernel writes at most as many bytes as there are.
    let len = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            packet.as_mut_ptr().cast(),
            packet.len(),
            libc::MSG_DONTWAIT,
        )
    };
    usize::try_from(len).ok()
}
