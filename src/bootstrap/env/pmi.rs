//! PMI-1: what MPICH's process manager and its kin carry between the ranks of a job, said in lines of `name=value` pairs
//! over a descriptor that each rank inherits.
//!
//! Source: Balaji, Buntinas, Goodell, Gropp, Krishna, Lusk, Thakur: "PMI: A Scalable Parallel Process-Management Interface
//! for Extreme-Scale Systems" (2010); what hydra and Slurm answer.

use super::carrier::Trouble;
use crate::sys::{
    fork::ProcessFd,
    poll::{self, Ready},
    socket,
};
use rustix::io::Errno;
use std::{
    io::IoSlice,
    os::fd::{AsFd, RawFd},
    time::Instant,
};
use zeroize::Zeroizing;

/// Gives all ranks the text that rank 0 brings; `mine` is `Some` there and only there. Begins the conversation, which there
/// is one of in a process's life, and ends it.
pub(super) fn share(
    fd: RawFd,
    key: &str,
    mine: Option<&str>,
    deadline: Instant,
) -> Result<Zeroizing<String>, Trouble> {
    let stream = socket::inherited(fd).map_err(|e| Trouble::Unable(format!("PMI_FD={fd}: {e}")))?;
    let mut manager = Manager { stream, deadline };
    manager.ask("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init")?;
    let space = manager
        .ask("cmd=get_my_kvsname", "my_kvsname")?
        .value("kvsname")?;
    let space = space.as_str();
    if let Some(text) = mine {
        let put = Zeroizing::new(format!("cmd=put kvsname={space} key={key} value={text}"));
        manager.ask(&put, "put_result")?;
    }
    manager.ask("cmd=barrier_in", "barrier_out")?;
    let get = format!("cmd=get kvsname={space} key={key}");
    let text = manager.ask(&get, "get_result")?.value("value")?;
    // The others have it, too, whatever becomes of the end.
    let _ = manager.ask("cmd=finalize", "finalize_ack");
    Ok(text)
}

/// The process manager at the other end.
struct Manager {
    stream: ProcessFd,
    deadline: Instant,
}

impl Manager {
    /// Says `line`; gives the answer, which is to be a `cmd=wanted`.
    fn ask(&mut self, line: &str, wanted: &str) -> Result<Answer, Trouble> {
        self.say(Zeroizing::new(format!("{line}\n")).as_bytes())?;
        let answer = Answer(self.hear()?);
        let well = answer.field("cmd") == Some(wanted) && answer.field("rc").is_none_or(|rc| rc == "0");
        match well {
            true => Ok(answer),
            false => Err(unable(format!(
                "the process manager's answer to {} was not {wanted}",
                asked(line)
            ))),
        }
    }

    fn say(&mut self, mut bytes: &[u8]) -> Result<(), Trouble> {
        while !bytes.is_empty() {
            match socket::send(&self.stream, &[IoSlice::new(bytes)], &[]) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(Errno::AGAIN | Errno::INTR) => self.wait(Ready::Write)?,
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(())
    }

    /// The next line. The other end says nothing unasked, so that nothing follows it.
    fn hear(&mut self) -> Result<Zeroizing<String>, Trouble> {
        let mut line = Zeroizing::new(vec![0; LONGEST]); // no growth leaves a copy behind
        let mut have = 0;
        while !line[..have].ends_with(b"\n") {
            if have == LONGEST {
                return Err(unable("the process manager's answer has no end".to_owned()));
            }
            match socket::receive_bytes(&self.stream, &mut line[have..]) {
                Ok(0) => return Err(lost(Errno::PIPE)),
                Ok(n) => have += n,
                Err(Errno::AGAIN | Errno::INTR) => self.wait(Ready::Read)?,
                Err(error) => return Err(lost(error)),
            }
        }
        Ok(Zeroizing::new(
            String::from_utf8_lossy(&line[..have]).into_owned(),
        ))
    }

    fn wait(&self, ready: Ready) -> Result<(), Trouble> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(Trouble::Late);
        }
        poll::wait(self.stream.as_fd(), ready, left)
            .map(|_| ())
            .map_err(lost)
    }
}

/// A line such as `cmd=get_result rc=0 value=7`.
struct Answer(Zeroizing<String>);

impl Answer {
    fn field(&self, name: &str) -> Option<&str> {
        let mut pairs = self.0.split_ascii_whitespace();
        pairs.find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    }

    fn value(&self, name: &str) -> Result<Zeroizing<String>, Trouble> {
        let value = self.field(name).map(|text| Zeroizing::new(text.to_owned()));
        value.ok_or_else(|| unable(format!("the process manager's answer has no {name}")))
    }
}

/// Reads a line as if it had come.
#[cfg(feature = "fuzzing")]
pub(super) fn read(line: &str) {
    let answer = Answer(Zeroizing::new(line.to_owned()));
    let _ = (answer.field("cmd"), answer.field("rc"));
    for name in ["kvsname", "value", ""] {
        let _ = answer.value(name);
    }
}

/// The first word of a line, without what may be secret.
fn asked(line: &str) -> &str {
    line.split(' ').next().unwrap_or(line)
}

fn unable(why: String) -> Trouble {
    Trouble::Unable(why)
}

fn lost(error: Errno) -> Trouble {
    unable(match error {
        Errno::PIPE | Errno::CONNRESET => "the process manager has hung up".to_owned(),
        error => format!("the process manager cannot be reached: {error}"),
    })
}

/// Bytes of a line, at most.
const LONGEST: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{BufRead, BufReader, Write},
        os::{fd::AsRawFd, unix::net::UnixStream},
        thread,
        time::Duration,
    };

    /// What comes of a rank whose manager answers with `answers`, one by one, and hangs up; and what it heard.
    fn talk(mine: Option<&str>, answers: &[&str]) -> (Result<String, Trouble>, Vec<String>) {
        let (near, far) = UnixStream::pair().unwrap();
        thread::scope(|s| {
            let manager = s.spawn(move || {
                let mut heard = Vec::new();
                let mut lines = BufReader::new(&far).lines();
                for answer in answers {
                    heard.extend(lines.next().map(Result::unwrap));
                    (&far).write_all(answer.as_bytes()).unwrap();
                }
                heard
            });
            let deadline = Instant::now() + Duration::from_secs(60);
            let got = share(near.as_raw_fd(), "k", mine, deadline).map(|text| text.to_string());
            drop(near);
            (got, manager.join().unwrap())
        })
    }

    const INIT: &str = "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n";
    const SPACE: &str = "cmd=my_kvsname kvsname=kvs_7\n";
    const BARRIER: &str = "cmd=barrier_out\n";

    #[test]
    fn rank_0_puts_and_the_others_get() {
        let got = "cmd=get_result rc=0 msg=success value=ab12\n";
        let end = "cmd=finalize_ack\n";
        let (text, heard) = talk(
            Some("ab12"),
            &[INIT, SPACE, "cmd=put_result rc=0\n", BARRIER, got, end],
        );
        assert_eq!(text.ok().as_deref(), Some("ab12"));
        assert_eq!(heard[2], "cmd=put kvsname=kvs_7 key=k value=ab12");
        let (text, heard) = talk(None, &[INIT, SPACE, BARRIER, got, end]);
        assert_eq!(text.ok().as_deref(), Some("ab12"));
        assert_eq!(heard[2..4], ["cmd=barrier_in", "cmd=get kvsname=kvs_7 key=k"]);
    }

    #[test]
    fn what_is_not_understood_is_told() {
        for (answers, wanted) in [
            (vec!["cmd=response_to_init rc=1\n"], "was not response_to_init"),
            (vec![INIT, "cmd=my_kvsname\n"], "has no kvsname"),
            (vec![INIT, SPACE], "hung up"),
            (vec!["garbage\n"], "was not response_to_init"),
        ] {
            match talk(None, &answers).0 {
                Err(Trouble::Unable(why)) => assert!(why.contains(wanted), "{why}"),
                other => panic!("{answers:?}: {other:?}"),
            }
        }
        let (near, _far) = UnixStream::pair().unwrap();
        let soon = Instant::now() + Duration::from_millis(50);
        let late = share(near.as_raw_fd(), "k", None, soon);
        assert!(matches!(late, Err(Trouble::Late)));
        assert!(matches!(share(-1, "k", None, soon), Err(Trouble::Unable(_))));
    }
}
