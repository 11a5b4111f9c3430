//! What is done to the ranks, and what must come of it.

use rustix::process::Signal;
use std::{
    fmt,
    io::{ErrorKind, Read},
    net::{TcpListener, TcpStream},
    process::Command,
    time::Duration,
};

/// Something that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// Nothing does.
    None,
    /// A rank is killed in a call, or while they meet.
    Kill,
    KillInInit,
    /// It is asked to end, which it does not handle.
    Terminate,
    /// It ends by itself, in these ways.
    Abort,
    Segfault,
    Exit,
    /// It is killed, and a child that it forked lives on.
    Fork,
    /// It stands still for longer than the deadline, or for a while.
    StopLong,
    StopShort,
    /// Its TCP connections are cut, it lives on.
    Cut,
    /// Somebody connects to all that listens and says something, a few times, or a thousand times.
    Strangers,
    Flood,
    /// Somebody comes with the right name of the communicator and a wrong secret.
    WrongSecret,
}

impl Fault {
    /// Those that can be had here.
    pub(crate) fn all() -> Vec<Fault> {
        use Fault::*;
        let all = [
            None,
            Kill,
            KillInInit,
            Terminate,
            Abort,
            Segfault,
            Exit,
            Fork,
            StopLong,
            StopShort,
            Cut,
            Strangers,
            Flood,
            WrongSecret,
        ];
        let can_cut = can_cut();
        if !can_cut {
            println!("left out: {Cut}, as this system does not let connections be ended (ss -K)");
        }
        all.into_iter().filter(|&fault| fault != Cut || can_cut).collect()
    }

    /// The signal by which it comes about.
    pub(crate) fn signal(self) -> Option<Signal> {
        match self {
            Fault::Kill | Fault::KillInInit | Fault::Fork => Some(Signal::KILL),
            Fault::Terminate => Some(Signal::TERM),
            Fault::StopLong | Fault::StopShort => Some(Signal::STOP),
            _ => None,
        }
    }

    /// Whether the rank is gone then.
    pub(crate) fn ends_a_rank(self) -> bool {
        use Fault::*;
        matches!(
            self,
            Kill | KillInInit | Terminate | Abort | Segfault | Exit | Fork
        )
    }

    /// Whether all go on as if nothing had happened.
    pub(crate) fn does_no_harm(self) -> bool {
        use Fault::*;
        matches!(self, None | StopShort | Strangers | Flood | WrongSecret)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Fault::None => "none",
            Fault::Kill => "kill -9 in a call",
            Fault::KillInInit => "kill -9 in init",
            Fault::Terminate => "SIGTERM",
            Fault::Abort => "abort",
            Fault::Segfault => "segfault",
            Fault::Exit => "exit, no goodbye",
            Fault::Fork => "kill -9, child lives",
            Fault::StopLong => "SIGSTOP, past deadline",
            Fault::StopShort => "SIGSTOP, for a while",
            Fault::Cut => "TCP connections cut",
            Fault::Strangers => "strangers",
            Fault::Flood => "1,000 strangers",
            Fault::WrongSecret => "wrong secret",
        })
    }
}

/// Whether connections of others can be ended, found out with one of our own.
fn can_cut() -> bool {
    let Ok(listener) = TcpListener::bind("127.0.0.1:0") else {
        return false;
    };
    let Ok(at) = listener.local_addr() else {
        return false;
    };
    let Ok(mut stream) = TcpStream::connect(at) else {
        return false;
    };
    cut(at.port());
    let _ = stream.set_read_timeout(Some(Duration::from_millis(200)));
    matches!(stream.read(&mut [0]), Err(e) if matches!(e.kind(), ErrorKind::ConnectionAborted | ErrorKind::ConnectionReset))
}

/// Ends the TCP connections with this port at either end, if the system lets us; how many that were.
pub(crate) fn cut(port: u16) -> usize {
    let which = format!("( sport = :{port} or dport = :{port} )");
    let mut ss = Command::new("ss");
    let output = ss
        .args(["-K", "-H", "-t", "-n", "state", "established"])
        .arg(which)
        .output();
    output.map_or(0, |output| {
        output.stdout.iter().filter(|&&byte| byte == b'\n').count()
    })
}
