//! Unix sockets with abstract names (nothing to remove from a file system), and descriptors sent over them.

use super::fork::ProcessFd;
use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
        accept_with, bind, connect, listen as start_listening, recvmsg, sendmsg, socket_with,
    },
};
use std::{
    fs,
    io::{IoSlice, IoSliceMut},
    mem::{MaybeUninit, size_of},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
    sync::OnceLock,
};

/// Descriptors that one message may carry.
pub(crate) const MAX_FDS: usize = 4;

/// A socket that listens under the abstract name `name`. It never blocks.
pub(crate) fn listen(name: &[u8]) -> Result<ProcessFd, Errno> {
    let fd = unix_socket()?;
    bind(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
    start_listening(&fd, BACKLOG)?;
    Ok(fd)
}

/// Connects to the abstract name `name`. Never blocks: [`Errno::AGAIN`] when the listener's queue is full,
/// [`Errno::CONNREFUSED`] when nobody listens there.
pub(crate) fn dial(name: &[u8]) -> Result<ProcessFd, Errno> {
    let fd = unix_socket()?;
    connect(&fd, &SocketAddrUnix::new_abstract_name(name)?)?;
    Ok(fd)
}

/// A copy, this process's own, of a socket that it was started with.
///
/// # Errors
/// [`Errno::BADF`] when there is none, [`Errno::NOTSOCK`] when it is something else.
pub(crate) fn inherited(fd: RawFd) -> Result<ProcessFd, Errno> {
    let copy = ProcessFd::open(|| {
        // SAFETY: it takes any number; what it gives is a new descriptor, which nobody else knows.
        match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) } {
            -1 => Err(last_error()),
            // SAFETY: see above.
            copy => Ok(unsafe { OwnedFd::from_raw_fd(copy) }),
        }
    })?;
    rustix::net::sockopt::socket_type(&copy)?;
    Ok(copy)
}

/// The next connection in `listener`'s queue, or `None`.
pub(crate) fn accept(listener: &ProcessFd) -> Result<Option<ProcessFd>, Errno> {
    match ProcessFd::open(|| accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)) {
        Ok(fd) => Ok(Some(fd)),
        Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The user that made the other end of `stream`, as it is numbered here: all who have no number here have the same, which may be
/// somebody's, too. (`rustix` cannot say for a peer from another pid namespace, whose pid is 0 here.)
pub(crate) fn peer_uid(stream: impl AsFd) -> Result<u32, Errno> {
    let mut credentials = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `credentials`, which holds that many and is plain integers.
    let code = unsafe {
        libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut len,
        )
    };
    if code != 0 {
        return Err(last_error());
    }
    Ok(credentials.uid)
}

/// The same for who gives or takes a secret on that word alone: [`UNKNOWN_USER`] where the number may be anybody's.
pub(crate) fn known_peer_uid(stream: impl AsFd) -> Result<u32, Errno> {
    Ok(match peer_uid(stream)? {
        uid if Some(uid) == number_of_strangers() => UNKNOWN_USER,
        uid => uid,
    })
}

/// No user's number: of one who has none in this process's user namespace.
pub(crate) const UNKNOWN_USER: u32 = u32::MAX;

/// A user, for messages.
pub(crate) fn tell_user(uid: u32) -> String {
    match uid {
        UNKNOWN_USER => {
            let number = number_of_strangers().unwrap_or(UNKNOWN_USER);
            format!(
                "an unknown user ({number} may be anybody in this user namespace, so no ranks of that user meet here)"
            )
        }
        uid => format!("user {uid}"),
    }
}

/// The number by which the kernel tells all users that have none in this process's user namespace, if such users can reach its sockets:
/// they cannot where the network is of this namespace as well.
fn number_of_strangers() -> Option<u32> {
    static NUMBER: OnceLock<Option<u32>> = OnceLock::new();
    *NUMBER.get_or_init(|| {
        let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
        if has_all_users(&map) || is_network_of_this_namespace() {
            return None;
        }
        let number = fs::read_to_string("/proc/sys/kernel/overflowuid").ok();
        Some(number.and_then(|text| text.trim().parse().ok()).unwrap_or(NOBODY))
    })
}

/// Whether a user namespace with this `uid_map` has all users of the system, by their own numbers.
fn has_all_users(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// Whether this process's network belongs to its user namespace, or to one within that.
fn is_network_of_this_namespace() -> bool {
    let Ok(network) = fs::File::open("/proc/self/ns/net") else {
        return false;
    };
    // SAFETY: it takes no argument; what it gives is a new descriptor, which nobody else knows.
    match unsafe { libc::ioctl(network.as_raw_fd(), NS_GET_USERNS) } {
        -1 => false,
        owner => {
            // SAFETY: see above.
            drop(unsafe { OwnedFd::from_raw_fd(owner) });
            true
        }
    }
}

/// Sends as much of `bytes` as goes without waiting, with `fds` beside the first byte. Returns the bytes sent; all
/// `fds` went if any byte did.
pub(crate) fn send(stream: impl AsFd, bytes: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !beside.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(Errno::TOOBIG);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(stream, bytes, &mut beside, flags)
}

/// Receives what has come, with the descriptors beside it (close-on-exec, added to `fds`). 0 is the end of the stream.
///
/// # Errors
/// [`Errno::TOOBIG`] when more than [`MAX_FDS`] descriptors came at once: the stream is then not to be used further.
pub(crate) fn receive(stream: impl AsFd, bytes: &mut [u8], fds: &mut Vec<ProcessFd>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_FDS))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let (got, mut came) = ProcessFd::open_many(|note| {
        let got = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut beside, flags)?;
        for message in beside.drain() {
            if let RecvAncillaryMessage::ScmRights(batch) = message {
                batch.for_each(&mut *note);
            }
        }
        Ok::<_, Errno>(got)
    });
    let got = got?;
    // Alignment can leave room for more than asked for, so both are looked at. `came` closes what it holds.
    if came.len() > MAX_FDS || got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(Errno::TOOBIG);
    }
    fds.append(&mut came);
    Ok(got.bytes)
}

/// Receives bytes alone; descriptors that came beside them are closed by the kernel.
pub(crate) fn receive_bytes(stream: impl AsFd, bytes: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(stream, bytes, RecvFlags::DONTWAIT).map(|(n, _)| n)
}

/// Turns received descriptors into ones that the receiver may keep across a fork.
pub(crate) fn release(fds: Vec<ProcessFd>) -> Vec<OwnedFd> {
    fds.into_iter().map(ProcessFd::into_owned).collect()
}

/// What the last call of the C library failed with.
fn last_error() -> Errno {
    let number = std::io::Error::last_os_error().raw_os_error();
    number.map_or(Errno::IO, Errno::from_raw_os_error)
}

fn unix_socket() -> Result<ProcessFd, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    ProcessFd::open(|| socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None))
}

/// Linux's: the user namespace that owns another namespace, unless that is outside of the caller's.
const NS_GET_USERNS: libc::Ioctl = 0xb701;
/// Linux's `overflowuid`, unless it was set.
const NOBODY: u32 = 65534;
/// Connections that may wait to be accepted; the kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::pipe;

    fn pair(test: u8) -> (ProcessFd, ProcessFd) {
        let name = format!("ccl-test-{}-{test}", std::process::id());
        let listener = listen(name.as_bytes()).unwrap();
        assert!(accept(&listener).unwrap().is_none());
        let near = dial(name.as_bytes()).unwrap();
        (near, accept(&listener).unwrap().unwrap())
    }

    #[test]
    fn bytes_and_descriptors_arrive() {
        let (near, far) = pair(1);
        assert_eq!(peer_uid(&far).unwrap(), rustix::process::getuid().as_raw());
        let (reader, writer) = pipe().unwrap();
        assert_eq!(send(&near, &[IoSlice::new(b"hello")], &[writer.as_fd()]), Ok(5));
        drop(writer);
        let (mut buf, mut fds) = ([0; 8], Vec::new());
        assert_eq!(receive(&far, &mut buf, &mut fds), Ok(5));
        assert_eq!(receive(&far, &mut buf, &mut fds), Err(Errno::AGAIN));
        assert_eq!(fds.len(), 1);
        rustix::io::write(&release(fds)[0], b"x").unwrap();
        assert_eq!(rustix::io::read(&reader, &mut buf), Ok(1));
        drop(near);
        // A child that another test has forked meanwhile may keep it open for a moment.
        let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while receive_bytes(&far, &mut buf) == Err(Errno::AGAIN) && std::time::Instant::now() < end {
            std::thread::yield_now();
        }
        assert_eq!(receive_bytes(&far, &mut buf), Ok(0));
    }

    #[test]
    fn surplus_descriptors_are_refused_and_closed() {
        let (near, far) = pair(2);
        for surplus in 1..=3 {
            let (reader, writer) = pipe().unwrap();
            let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(16))];
            let mut beside = SendAncillaryBuffer::new(&mut space);
            let many = vec![writer.as_fd(); MAX_FDS + surplus];
            assert!(beside.push(SendAncillaryMessage::ScmRights(&many)));
            sendmsg(&near, &[IoSlice::new(b"!")], &mut beside, SendFlags::empty()).unwrap();
            drop(writer);
            assert_eq!(receive(&far, &mut [0; 8], &mut Vec::new()), Err(Errno::TOOBIG));
            // All copies of the writing end are closed, so the pipe has ended.
            assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
        }
    }

    #[test]
    fn only_sockets_are_inherited() {
        let (near, far) = pair(3);
        let copy = inherited(near.as_fd().as_raw_fd()).unwrap();
        assert_eq!(send(&copy, &[IoSlice::new(b"x")], &[]), Ok(1));
        assert_eq!(receive_bytes(&far, &mut [0; 2]), Ok(1));
        let (reader, _writer) = pipe().unwrap();
        assert_eq!(inherited(reader.as_raw_fd()).unwrap_err(), Errno::NOTSOCK);
        assert_eq!(inherited(-1).unwrap_err(), Errno::BADF);
    }

    #[test]
    fn a_namespace_has_all_users_or_not() {
        assert!(has_all_users("         0          0 4294967295\n"));
        for map in [
            "",
            "0 1000 1\n",
            "0 1000 1\n1 100000 65536\n",
            "65534 1000 1\n",
            "0 0 65536\n",
        ] {
            assert!(!has_all_users(map), "{map}");
        }
    }

    /// In a user namespace of its own, as 65534, on this host's network: a user who has no number there looks the same.
    #[test]
    fn a_user_without_a_number_is_nobody() {
        if let Ok(name) = std::env::var("CCL_TEST_STRANGER") {
            let stream = dial(name.as_bytes()).unwrap();
            assert_eq!(known_peer_uid(&stream), Ok(UNKNOWN_USER));
            return;
        }
        let name = format!("ccl-test-{}-stranger", std::process::id());
        let listener = listen(name.as_bytes()).unwrap();
        // Not the first user of the new namespace, who would be this one.
        let mut command = std::process::Command::new("setpriv");
        command.args(["--reuid", "1234", "--regid", "1234", "--clear-groups"]);
        command.args(["unshare", "--user", "--map-user=65534"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "sys::socket::tests::a_user_without_a_number_is_nobody"]);
        let output = command.env("CCL_TEST_STRANGER", &name).output();
        drop(listener);
        match output {
            Ok(output) if output.status.success() => {
                assert!(
                    String::from_utf8_lossy(&output.stdout).contains("1 passed"),
                    "{output:?}"
                );
            }
            Ok(output) if output.status.code() != Some(101) => {
                println!(
                    "skipped: no user namespace: {}",
                    String::from_utf8_lossy(&output.stderr)
                );
            }
            Ok(output) => panic!("{output:?}"),
            Err(why) => println!("skipped: setpriv: {why}"),
        }
    }

    #[test]
    fn nobody_there() {
        assert_eq!(dial(b"ccl-test-nobody").unwrap_err(), Errno::CONNREFUSED);
    }
}
