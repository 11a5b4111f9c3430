//! TCP sockets. None of them ever blocks.

use super::{
    fork::{self, ProcessFd},
    poll,
};
use rustix::{
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags,
        SocketType, bind, connect, getpeername, getsockname, ipproto, listen as start_listening, recv,
        recvmsg, send as send_piece, sendmsg, socket_with, sockopt,
    },
};
use std::{
    fs,
    io::{IoSlice, IoSliceMut},
    mem,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

/// A socket that listens at all addresses of this host; 0 is a free port. Returns it and its port.
pub(crate) fn listen(port: u16) -> Result<(ProcessFd, u16), Errno> {
    let all: [IpAddr; 2] = [Ipv6Addr::UNSPECIFIED.into(), Ipv4Addr::UNSPECIFIED.into()];
    let listener = match listen_at(SocketAddr::new(all[0], port)) {
        // Hosts may have no IPv6 at all.
        Err(Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL | Errno::INVAL) => {
            listen_at(SocketAddr::new(all[1], port))?
        }
        other => other?,
    };
    let port = local_address(&listener)?.port();
    Ok((listener, port))
}

fn listen_at(at: SocketAddr) -> Result<ProcessFd, Errno> {
    let fd = socket(at)?;
    if at.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, false)?;
    }
    // A port is free as soon as nobody listens there, whatever connections of earlier processes are still ending.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    bind(&fd, &at)?;
    start_listening(&fd, BACKLOG)?;
    Ok(fd)
}

/// Begins a connection, from our address `source` or the one that routing chooses; [`connected`] tells when it is there.
pub(crate) fn dial(source: Option<IpAddr>, to: SocketAddr) -> Result<ProcessFd, Errno> {
    let fd = socket(to)?;
    if let Some(ip) = source {
        bind_address(&fd, ip)?;
    }
    if to.ip().is_loopback() || source == Some(to.ip()) {
        // Before it is there: a connection that has once begun with BBR is paced ever after.
        let _ = set_congestion(&fd, ON_ONE_HOST);
    }
    match connect(&fd, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(fd),
        Err(e) => Err(e),
    }
}

/// Gives a socket our address `ip`. Its port is chosen when it connects, so that others may have the same one to elsewhere: one that is
/// chosen at once, as by systems that do not know this, is its own at that address.
fn bind_address(socket: impl AsFd, ip: IpAddr) -> Result<(), Errno> {
    set_if_known(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1);
    bind(&socket, &SocketAddr::new(ip, 0))
}

/// Whether a connection that was begun is there.
///
/// # Errors
/// Why it will not come about.
pub(crate) fn connected(stream: impl AsFd) -> Result<bool, Errno> {
    sockopt::socket_error(&stream)??;
    match peer_address(&stream) {
        // On one host a socket can meet itself, if its own port happens to be the one that it dials.
        Ok(peer) if peer == local_address(&stream)? => Err(Errno::CONNREFUSED),
        Ok(_) => Ok(true),
        Err(Errno::NOTCONN) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Why a connection that was made does not work any more, as where its other end has reset it; `None` while it does, and where that
/// end has only said that no more comes. What TCP survives, as a way that is closed for a moment, the system would tell as its error,
/// too: so it is asked for that only of a broken one.
pub(crate) fn broken(stream: impl AsFd) -> Option<Errno> {
    match poll::is_broken(stream.as_fd()) {
        Ok(false) => None,
        Ok(true) => match sockopt::socket_error(&stream) {
            Ok(Err(e)) | Err(e) => Some(e),
            Ok(Ok(())) => Some(Errno::CONNRESET), // somebody has been told why already
        },
        Err(e) => Some(e),
    }
}

/// Prepares a connection: small messages leave at once, and a peer whose host has vanished is noticed. One that stays on
/// this host loses nothing, and is only held up by what reckons with that.
pub(crate) fn tune(stream: impl AsFd) -> Result<(), Errno> {
    sockopt::set_tcp_nodelay(&stream, true)?;
    sockopt::set_socket_keepalive(&stream, true)?;
    let heartbeat = Heartbeat::within(LIMIT.load(Relaxed));
    sockopt::set_tcp_keepidle(&stream, heartbeat.silence)?;
    sockopt::set_tcp_keepintvl(&stream, heartbeat.probe)?;
    sockopt::set_tcp_keepcnt(&stream, heartbeat.probes)?;
    if let Some(retry) = heartbeat.retry(retries()) {
        try_again_within(&stream, retry);
    }
    sockopt::set_tcp_user_timeout(&stream, heartbeat.end().as_millis() as u32)?;
    if is_on_one_host(&stream) {
        // Only slower where there is no such thing.
        let _ = set_congestion(&stream, ON_ONE_HOST);
    }
    Ok(())
}

/// Whether both ends are on this host, for all that is known here.
pub(crate) fn is_on_one_host(stream: impl AsFd) -> bool {
    let addresses = (peer_address(&stream), local_address(&stream));
    matches!(addresses, (Ok(peer), Ok(own)) if peer.ip() == own.ip())
}

/// Has what is lost on its way sent again and again, with so long between two tries at most. Before Linux 6.15, which does not know
/// it, each waits twice as long as the one before, and the next after an outage comes when that has lasted as long again.
fn try_again_within(stream: impl AsFd, most: Duration) {
    set_if_known(
        stream,
        libc::IPPROTO_TCP,
        TCP_RTO_MAX_MS,
        most.as_millis() as libc::c_int,
    );
}

/// Sets an option that older systems do not know, and without which it goes, too.
fn set_if_known(socket: impl AsFd, level: libc::c_int, option: libc::c_int, value: libc::c_int) {
    // SAFETY: it reads an integer of so many bytes.
    let _ = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of_val(&value) as libc::socklen_t,
        )
    };
}

/// Has what is still to be sent on a tuned connection, which is about to be closed, wait for its reader. Of a connection that nobody
/// has any more the system drops that as soon as it waits as long as it ever may between two tries, which [`tune`] makes a second.
pub(crate) fn leave_behind(stream: impl AsFd) {
    try_again_within(stream, MOST_RETRY);
}

/// The same for all connections of a process that ends.
pub(crate) fn leave_all_behind() {
    fork::each_open(|fd| leave_behind(fd));
}

/// How long ago something came on a connection, or it was made; `None` if the system does not say.
pub(crate) fn silent_for(stream: impl AsFd) -> Option<Duration> {
    // SAFETY: plain integers, for which zeros are values.
    let mut info: libc::tcp_info = unsafe { mem::zeroed() };
    let mut len = size_of_val(&info) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes into `info`, which holds that many.
    let code = unsafe {
        libc::getsockopt(
            stream.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut len,
        )
    };
    (code == 0).then(|| Duration::from_millis(info.tcpi_last_data_recv.into()))
}

/// For how many seconds the other end of connections that are tuned from now on may be cut off; after at most half as many more
/// it is given up.
pub(crate) fn set_limit(seconds: u32) {
    LIMIT.store(seconds.clamp(LEAST_LIMIT, MOST_LIMIT), Relaxed);
}

/// How long the other end of such a connection is not heard until it is given up.
pub(crate) fn given_up_after() -> Duration {
    Heartbeat::within(LIMIT.load(Relaxed)).end()
}

/// When a silent connection is probed.
#[derive(Debug, PartialEq, Eq)]
struct Heartbeat {
    /// How long it is silent before its other end is probed.
    silence: Duration,
    /// How long each probe waits, in whole seconds as the kernel counts them.
    probe: Duration,
    probes: u32,
}

impl Heartbeat {
    /// The silence may be over when the other end is cut off, and the last probe is lost if that lasts until then: both come on top.
    fn within(limit: u32) -> Heartbeat {
        let (silence, probe) = ((limit / 5).max(1), (limit / 8).max(1));
        Heartbeat {
            silence: Duration::from_secs(silence.into()),
            probe: Duration::from_secs(probe.into()),
            probes: limit.div_ceil(probe) + 1,
        }
    }

    /// How long after it was last heard the other end is given up.
    fn end(&self) -> Duration {
        self.silence + self.probe * self.probes
    }

    /// How long what was sent may be without an answer before it is sent again: short, but not so that a connection without a limit of
    /// its own is given up before [`Heartbeat::end`], as the kernel does that when so many `tries` were in vain. `None`: it would be.
    fn retry(&self, tries: u32) -> Option<Duration> {
        let lasts = |most: &Duration| {
            // As the kernel reckons: each waits twice as long as the one before, until that is the most.
            let doubled = (most.as_millis() / FIRST_RETRY.as_millis()).ilog2().min(tries);
            FIRST_RETRY * ((2 << doubled) - 1) + *most * (tries - doubled)
        };
        let mut all = (1..=MOST_RETRY.as_secs()).map(Duration::from_secs);
        all.find(|most| lasts(most) > self.end())
    }
}

/// How many times the system sends something again in vain before it gives a connection up.
fn retries() -> u32 {
    static RETRIES: OnceLock<u32> = OnceLock::new();
    *RETRIES.get_or_init(|| {
        let text = fs::read_to_string("/proc/sys/net/ipv4/tcp_retries2").ok();
        text.and_then(|text| text.trim().parse().ok()).unwrap_or(15)
    })
}

/// Has a connection use this congestion control.
pub(crate) fn set_congestion(stream: impl AsFd, name: &str) -> Result<(), Errno> {
    sockopt::set_tcp_congestion(stream, name)
}

/// Why connections of this process cannot use this congestion control, if they cannot.
pub(crate) fn try_congestion(name: &str) -> Result<(), Errno> {
    let socket = socket(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    set_congestion(&socket, name)
}

/// Has a tuned connection wait for as long as its other end takes nothing in. The limit that [`tune`] sets would end it then:
/// for the kernel a reader with no room is as good as one that does not answer.
pub(crate) fn wait_for_reader(stream: impl AsFd) -> Result<(), Errno> {
    sockopt::set_tcp_user_timeout(&stream, 0)
}

/// Sends as much of `bytes` as goes without waiting.
pub(crate) fn send(stream: impl AsFd, bytes: &[IoSlice<'_>]) -> Result<usize, Errno> {
    send_as(stream, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
}

/// The same where more follows at once, with which it may travel.
pub(crate) fn send_ahead(stream: impl AsFd, bytes: &[IoSlice<'_>]) -> Result<usize, Errno> {
    send_as(
        stream,
        bytes,
        SendFlags::NOSIGNAL | SendFlags::DONTWAIT | SendFlags::MORE,
    )
}

fn send_as(stream: impl AsFd, bytes: &[IoSlice<'_>], flags: SendFlags) -> Result<usize, Errno> {
    match bytes {
        [only] => send_piece(stream, only, flags),
        several => sendmsg(stream, several, &mut SendAncillaryBuffer::default(), flags),
    }
}

/// Receives what has come into `bytes`, one after the other. 0 is the end of the stream.
pub(crate) fn receive(stream: impl AsFd, bytes: &mut [IoSliceMut<'_>]) -> Result<usize, Errno> {
    // Of one piece the kernel has less to look at.
    if let [only] = bytes {
        return recv(stream, &mut **only, RecvFlags::DONTWAIT).map(|(got, _)| got);
    }
    let mut nothing = RecvAncillaryBuffer::default();
    recvmsg(stream, bytes, &mut nothing, RecvFlags::DONTWAIT).map(|got| got.bytes)
}

/// Our address on a socket.
pub(crate) fn local_address(socket: impl AsFd) -> Result<SocketAddr, Errno> {
    Ok(plain(getsockname(socket)?.try_into()?))
}

/// The other side's address on a connection.
pub(crate) fn peer_address(stream: impl AsFd) -> Result<SocketAddr, Errno> {
    let at = getpeername(stream)?.ok_or(Errno::NOTCONN)?;
    Ok(plain(at.try_into()?))
}

/// The address without the form that a socket for both versions of IP gives to version 4.
fn plain(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

fn socket(to: SocketAddr) -> Result<ProcessFd, Errno> {
    let family = match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    ProcessFd::open(|| socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP)))
}

/// Both ends of a connection.
#[cfg(test)]
pub(crate) fn pair() -> (ProcessFd, ProcessFd) {
    let (listener, port) = listen(0).unwrap();
    let near = dial(None, ([127, 0, 0, 1], port).into()).unwrap();
    loop {
        if let Some(far) = super::socket::accept(&listener).unwrap() {
            return (near, far);
        }
    }
}

/// Connections that may wait to be accepted; the kernel lowers it to its own limit.
const BACKLOG: i32 = 4096;
/// For how many seconds a host may be cut off.
static LIMIT: AtomicU32 = AtomicU32::new(DEFAULT_LIMIT);
pub(crate) const DEFAULT_LIMIT: u32 = 10;
/// How long the kernel waits until it sends something again: at first, at least, and at the most, unless it is told.
const FIRST_RETRY: Duration = Duration::from_millis(200);
const MOST_RETRY: Duration = Duration::from_secs(120);
/// Linux's.
const TCP_RTO_MAX_MS: libc::c_int = 44;
/// With less a lost probe or two would be enough, as the kernel counts in seconds.
pub(crate) const LEAST_LIMIT: u32 = 5;
pub(crate) const MOST_LIMIT: u32 = 3600;
/// The congestion control of connections that stay on one host: they moved 8.2 GB/s with it, 3.2 with BBR.
const ON_ONE_HOST: &str = "reno";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{
        poll::Ready,
        socket::{accept, receive_bytes},
    };
    use rustix::net::connect_unspec;
    use std::thread;

    #[test]
    fn an_outage_of_the_limit_ends_nothing_and_one_half_as_long_again_does() {
        let usual = Heartbeat::within(DEFAULT_LIMIT);
        let seconds = Duration::from_secs;
        let wanted = Heartbeat {
            silence: seconds(2),
            probe: seconds(1),
            probes: 11,
        };
        assert_eq!(usual, wanted);
        for limit in LEAST_LIMIT..=MOST_LIMIT {
            let heartbeat = Heartbeat::within(limit);
            let limit = seconds(limit.into());
            // It begins when all was silent for as long as that goes without a probe, or just after something was heard.
            let last_probe = heartbeat.end() - heartbeat.probe;
            assert!(
                last_probe - heartbeat.silence >= limit,
                "{limit:?}: {heartbeat:?}"
            );
            assert!(heartbeat.end() <= limit * 3 / 2, "{limit:?}: {heartbeat:?}");
            assert!(heartbeat.probes <= 127, "{limit:?}: {heartbeat:?}");
        }
        let of = |limit, tries| Heartbeat::within(limit).retry(tries).map(|retry| retry.as_secs());
        assert_eq!(of(5, 15), Some(1));
        assert_eq!(of(10, 15), Some(1));
        assert_eq!(of(60, 15), Some(7));
        // With fewer tries each must wait longer, and in the end they are over before.
        assert_eq!(of(10, 8), Some(3));
        assert_eq!(of(10, 6), Some(4));
        assert_eq!(of(10, 5), None);
        assert_eq!(of(3600, 15), None);
    }

    #[test]
    fn both_versions_of_ip_are_served_and_bytes_arrive() {
        let (listener, port) = listen(0).unwrap();
        for ip in ["127.0.0.1", "::1"] {
            let at = SocketAddr::new(ip.parse().unwrap(), port);
            let near = match dial(None, at) {
                Err(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT) => continue, // a host without IPv6
                near => near.unwrap(),
            };
            poll::wait(near.as_fd(), Ready::Write, Duration::from_secs(10)).unwrap();
            assert!(connected(&near).unwrap());
            poll::wait(listener.as_fd(), Ready::Read, Duration::from_secs(10)).unwrap();
            let far = accept(&listener).unwrap().unwrap();
            tune(&near).unwrap();
            assert_ne!(sockopt::tcp_user_timeout(&near), Ok(0));
            wait_for_reader(&near).unwrap();
            assert_eq!(sockopt::tcp_user_timeout(&near), Ok(0));
            assert_eq!(peer_address(&near).unwrap(), at);
            assert_eq!(local_address(&near).unwrap(), peer_address(&far).unwrap());
            assert_eq!(send(&near, &[IoSlice::new(b"hel"), IoSlice::new(b"lo")]), Ok(5));
            poll::wait(far.as_fd(), Ready::Read, Duration::from_secs(10)).unwrap();
            assert_eq!(receive_bytes(&far, &mut [0; 8]), Ok(5));
        }
        assert_eq!(listen(port).unwrap_err(), Errno::ADDRINUSE);
    }

    #[test]
    fn an_address_of_our_own_takes_no_port_before_it_connects() {
        let (_listener, port) = listen(0).unwrap();
        for ip in ["127.0.0.1", "::1"] {
            let ip: IpAddr = ip.parse().unwrap();
            match socket(SocketAddr::new(ip, port)).and_then(|fd| bind_address(&fd, ip).map(|()| fd)) {
                Err(Errno::ADDRNOTAVAIL | Errno::AFNOSUPPORT) => continue, // a host without IPv6
                fd => assert_eq!(local_address(fd.unwrap()), Ok(SocketAddr::new(ip, 0))),
            }
            let near = dial(Some(ip), SocketAddr::new(ip, port)).unwrap();
            poll::wait(near.as_fd(), Ready::Write, Duration::from_secs(10)).unwrap();
            assert_eq!(connected(&near), Ok(true));
            assert_ne!(local_address(&near).unwrap().port(), 0);
        }
    }

    #[test]
    fn a_connection_that_is_reset_is_broken_and_one_that_ends_in_order_is_not() {
        let (near, far) = pair();
        assert_eq!(broken(&far), None);
        send(&near, &[IoSlice::new(b"last")]).unwrap();
        drop(near);
        poll::wait(far.as_fd(), Ready::Read, Duration::from_secs(10)).unwrap();
        assert_eq!(receive_bytes(&far, &mut [0; 8]), Ok(4));
        poll::wait(far.as_fd(), Ready::Read, Duration::from_secs(10)).unwrap();
        assert_eq!(broken(&far), None);
        let (near, far) = pair();
        // What has come and was not read yet stays there, and says nothing of that.
        send(&near, &[IoSlice::new(b"last")]).unwrap();
        poll::wait(far.as_fd(), Ready::Read, Duration::from_secs(10)).unwrap();
        connect_unspec(&near).unwrap();
        let soon = (0..10_000).find_map(|_| {
            thread::sleep(Duration::from_millis(1));
            broken(&far)
        });
        assert_eq!(soon, Some(Errno::CONNRESET));
        assert_eq!(broken(&far), Some(Errno::CONNRESET)); // the system tells its error once
    }

    #[test]
    fn nobody_there() {
        let port = listen(0).unwrap().1;
        let stream = dial(None, SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
        poll::wait(stream.as_fd(), Ready::Write, Duration::from_secs(10)).unwrap();
        assert_eq!(connected(&stream).unwrap_err(), Errno::CONNREFUSED);
    }
}
