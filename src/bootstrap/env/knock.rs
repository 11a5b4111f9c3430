//! [`knock`]: the other ranks' side of a meeting on one host. They fetch the unique id at rank 0's door.

use super::words::{Answer, Decoded, Hello};
use crate::{
    bootstrap::UniqueId,
    sys::{
        fork::{self, ProcessFd},
        poll::{self, Ready},
        socket,
    },
    types::{Error, Result},
};
use rustix::io::Errno;
use std::{
    io::IoSlice,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};
use zeroize::Zeroizing;

/// Why there was no id until the deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Absence {
    /// Nobody listened, or had time.
    Nobody,
    /// Somebody listened, and said nothing.
    Mute,
}

/// Fetches the id at `place`, from a process of `user`. Rank 0 may be late, so this tries until the deadline, and tells how it
/// was absent when that has passed.
///
/// # Errors
/// [`Error::Init`] when rank 0 says no, or when it is another user that listens there; [`Error::System`].
pub(super) fn knock(
    place: &str,
    user: u32,
    hello: Hello,
    deadline: Instant,
) -> Result<std::result::Result<UniqueId, Absence>> {
    fork::watch().map_err(|e| Error::system("cannot watch for forks", e))?;
    let mut pause = SHORTEST_PAUSE;
    loop {
        let absence = match knock_once(place, user, hello, deadline)? {
            Ok(Answer::Id(id)) => return UniqueId::from_bytes(*id).map(Ok),
            Ok(Answer::Refused(what)) => return Err(Error::Init { what }),
            Err(absence) => absence,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Err(absence));
        }
        thread::sleep(pause.min(left));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// One who is mute is waited for until the deadline.
fn knock_once(
    place: &str,
    user: u32,
    hello: Hello,
    deadline: Instant,
) -> Result<std::result::Result<Answer, Absence>> {
    let failed = |error: Errno| Error::system(format!("cannot ask rank 0 at unix:@{place}"), error);
    let stream = match socket::dial(place.as_bytes()) {
        Ok(stream) => stream,
        Err(Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => return Ok(Err(Absence::Nobody)),
        Err(error) => return Err(failed(error)),
    };
    let uid = socket::known_peer_uid(&stream).map_err(failed)?;
    if uid != user {
        return Err(Error::Init {
            what: format!(
                "at unix:@{place}, where the ranks of this job meet, listens a process of {}: nothing that \
                 it says is believed. Give the job another MASTER_PORT, or have that process ended",
                socket::tell_user(uid)
            ),
        });
    }
    match socket::send(&stream, &[IoSlice::new(&hello.encode())], &[]) {
        Ok(Hello::LEN) => {}
        Ok(_) | Err(Errno::PIPE | Errno::CONNRESET | Errno::AGAIN | Errno::INTR) => {
            return Ok(Err(Absence::Nobody));
        }
        Err(error) => return Err(failed(error)),
    }
    listen(place, &stream, deadline)
}

fn listen(
    place: &str,
    stream: &ProcessFd,
    deadline: Instant,
) -> Result<std::result::Result<Answer, Absence>> {
    let failed = |error: Errno| Error::system(format!("no answer from rank 0 at unix:@{place}"), error);
    let mut buffer = Zeroizing::new([0; Answer::MOST]);
    let mut have = 0;
    loop {
        match socket::receive_bytes(stream, &mut buffer[have..]) {
            // It has ended, or too many came at once.
            Ok(0) | Err(Errno::CONNRESET) => return Ok(Err(Absence::Nobody)),
            Ok(n) => have += n,
            Err(Errno::AGAIN | Errno::INTR) => {
                let left = deadline.saturating_duration_since(Instant::now());
                if left.is_zero() {
                    return Ok(Err(Absence::Mute));
                }
                poll::wait(stream.as_fd(), Ready::Read, left).map_err(failed)?;
            }
            Err(error) => return Err(failed(error)),
        }
        match Answer::decode(&buffer[..have]) {
            Decoded::Whole(answer) => return Ok(Ok(answer)),
            Decoded::Unfinished => {}
            Decoded::Garbage => {
                return Err(Error::Init {
                    what: format!(
                        "what listens at unix:@{place}, where the ranks of this job meet, does not speak ccl's \
                         protocol: end it, or give the job another MASTER_PORT"
                    ),
                });
            }
        }
    }
}

const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
