//! Asking a process how its communicators are doing.

use super::{Group, Report, known_secret};
use crate::{
    bootstrap::env::keys_for_looking,
    net::{
        Address, DialError, Failure, FrameError, MEETING, Patience, Protection, Refused, Role, Target, unhex,
    },
    sys::host,
    types::{Error, MAX_RANKS},
};
use std::{
    collections::BTreeSet,
    fs, io,
    net::ToSocketAddrs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// Why a process tells nothing.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Blind {
    #[error("there is no such process")]
    Gone,
    #[error("it belongs to another user")]
    Foreign,
    #[error("it uses no communicator of ccl's, or none yet")]
    Stranger,
    #[error("it is in another network namespace: look from within")]
    Elsewhere,
    #[error(
        "processes of other hosts are asked by the secret of their user: have CCL_SECRET_FILE (or CCL_SECRET) name the one that they have"
    )]
    NoSecret,
    #[error("{0}")]
    Secret(Error),
    #[error("it has no address: {0}")]
    Nowhere(io::Error),
    #[error("nobody listens there")]
    Nobody,
    #[error(
        "who listens there knows no secret of its user's, or is no process that uses ccl of this version: give the ranks a secret \
         (CCL_SECRET_FILE or CCL_SECRET), or ask by its number on its host"
    )]
    Secretless,
    #[error("it has another secret than CCL_SECRET_FILE (or CCL_SECRET) names here")]
    OtherSecret,
    #[error("it did not answer within {0:.0?}{1}")]
    Silent(Duration, &'static str),
    #[error("{0}")]
    Failed(#[from] Failure),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Asks process `pid` of this host how its communicators are doing: `limit` at most.
///
/// # Errors
/// Why it tells nothing.
pub(crate) fn look(pid: u32, limit: Duration) -> Result<Report, Blind> {
    let sockets = sockets(pid)?;
    let [first, ..] = sockets[..] else {
        return Err(Blind::Stranger);
    };
    let thread = host::living_thread(pid);
    if namespace(Path::new(&format!("/proc/{thread}"))) != namespace(Path::new("/proc/self")) {
        return Err(Blind::Elsewhere);
    }
    let target = Target {
        addresses: vec![first],
        role: Role::Status,
        from: MEETING,
        to: MEETING,
        comm: [0; 16],
        secret: known_secret(),
        protection: Protection::Off,
    };
    match ask(&target, limit) {
        Ok(report) => Ok(report),
        Err(Failure::Late) => Err(Blind::Silent(limit, state_of(pid))),
        Err(Failure::Dial(DialError::Nobody)) | Err(Failure::Frame(FrameError::Closed)) => {
            Err(if state_of(pid).is_empty() && !exists(pid) {
                Blind::Gone
            } else {
                Blind::Failed(Failure::Frame(FrameError::Closed))
            })
        }
        Err(e) => Err(e.into()),
    }
}

/// Asks the process that listens at `place`, HOST:PORT, on any host: `limit` at most.
///
/// # Errors
/// Why it tells nothing.
pub(crate) fn look_at(place: &str, limit: Duration) -> Result<Report, Blind> {
    let (comm, secret) = keys_for_looking()
        .map_err(Blind::Secret)?
        .ok_or(Blind::NoSecret)?;
    let addresses = place.to_socket_addrs().map_err(Blind::Nowhere)?;
    let target = Target {
        addresses: addresses.map(Address::Tcp).collect(),
        role: Role::Status,
        from: MEETING,
        to: MEETING,
        comm,
        secret,
        protection: Protection::Encrypt,
    };
    ask(&target, limit).map_err(|failure| match failure {
        Failure::Late => Blind::Silent(limit, ""),
        Failure::Dial(DialError::Nobody) => Blind::Nobody,
        Failure::Dial(DialError::Refused(Refused::ProofRejected | Refused::WrongProof)) => Blind::OtherSecret,
        Failure::Dial(DialError::Refused(Refused::Unknown | Refused::Garbage)) => Blind::Secretless,
        failure => failure.into(),
    })
}

fn ask(target: &Target, limit: Duration) -> Result<Report, Failure> {
    let patience = Patience::new(Instant::now() + limit, &|| false);
    let mut channel = patience.dial(target)?;
    let report: Report = patience.receive(&mut channel)?.message()?;
    // Any process may say anything of itself, and the superuser looks at those of all users.
    let is_possible = |group: &Group| {
        let ranks = group.ranks as usize;
        ranks <= MAX_RANKS && group.here.len() <= ranks && group.seen.len() <= ranks
    };
    match report.communicators.iter().all(is_possible) {
        true => Ok(report),
        false => Err(FrameError::Malformed.into()),
    }
}

/// The processes of this host that use the library and that we may look into.
pub(crate) fn processes() -> io::Result<Vec<u32>> {
    let mut all = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok());
        all.extend(pid.filter(|&pid| sockets(pid).is_ok_and(|sockets| !sockets.is_empty())));
    }
    all.sort_unstable();
    Ok(all)
}

fn exists(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

fn namespace(process: &Path) -> Option<PathBuf> {
    fs::read_link(process.join("ns/net")).ok()
}

/// The sockets where the control thread of process `pid` listens: one, as a rule.
fn sockets(pid: u32) -> Result<Vec<Address>, Blind> {
    let seen = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => Blind::Gone,
        io::ErrorKind::PermissionDenied => Blind::Foreign,
        _ => Blind::Io(e),
    };
    let mut inodes = BTreeSet::new();
    let thread = host::living_thread(pid);
    for entry in fs::read_dir(format!("/proc/{thread}/fd")).map_err(seen)? {
        let Ok(link) = entry
            .map_err(seen)
            .and_then(|entry| fs::read_link(entry.path()).map_err(seen))
        else {
            continue; // closed meanwhile
        };
        let link = link.to_string_lossy();
        let inode = link
            .strip_prefix("socket:[")
            .and_then(|rest| rest.strip_suffix(']'));
        inodes.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    let table = fs::read_to_string(format!("/proc/{thread}/net/unix")).map_err(seen)?;
    let listening = table.lines().filter_map(listener);
    let ours = listening.filter(|(inode, _)| inodes.contains(inode));
    Ok(ours.map(|(_, address)| address).collect())
}

/// The inode and the address of a control thread's listening socket, if a line of `/proc/net/unix` is of one.
fn listener(line: &str) -> Option<(u64, Address)> {
    const LISTENS: u32 = 1 << 16; // __SO_ACCEPTCON
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, _, _, flags, _, _, inode, name] = words[..] else {
        return None;
    };
    let flags = u32::from_str_radix(flags, 16).ok()?;
    let mut random = [0; 16];
    unhex(name.strip_prefix("@ccl-")?, &mut random)?;
    (flags & LISTENS != 0).then_some((inode.parse().ok()?, Address::Unix(random)))
}

/// What the system says of a process that does not answer.
fn state_of(pid: u32) -> &'static str {
    match host::process_state(pid) {
        Some('T') => ": it is stopped",
        Some('t') => ": a debugger has stopped it",
        Some('D') => ": it waits for a device",
        Some('Z' | 'X') => ": it has ended",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_told_from_others() {
        let name = "0123456789abcdef0123456789abcdef";
        let line = |flags: &str, name: &str| {
            listener(&format!(
                "ffff8881: 00000002 00000000 {flags} 0001 01 4711 {name}"
            ))
        };
        let random = [1, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef];
        let address = Address::Unix([random, random].concat().try_into().unwrap());
        assert_eq!(line("00010000", &format!("@ccl-{name}")), Some((4711, address)));
        assert_eq!(line("00000000", &format!("@ccl-{name}")), None);
        for other in [
            "@ccl-17",
            "@ccl-env-0123456789abcdef0123456789abcd",
            "/run/x",
            "@ccl-zz",
        ] {
            assert_eq!(line("00010000", other), None);
        }
        assert_eq!(listener("Num RefCount Protocol Flags Type St Inode Path"), None);
    }
}
