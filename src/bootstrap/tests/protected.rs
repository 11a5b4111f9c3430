//! Ranks whose connections are protected, and somebody on the way.

use super::*;
use crate::{
    bootstrap::control,
    net::{Address, Protection},
};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    sync::Mutex,
};

/// Somebody between a rank and the meeting place, who keeps all that goes by and may alter it.
struct Relay {
    id: UniqueId,
    seen: Arc<Mutex<Vec<u8>>>,
}

/// The direction of a connection, and the number of a byte in it.
#[derive(Clone, Copy)]
enum Flip {
    No,
    ToMeeting(usize),
    ToRank(usize),
}

impl Relay {
    /// In front of the meeting of `id`, which is in this process.
    fn before(id: &UniqueId, flip: Flip) -> Relay {
        let port = control::start().unwrap().listen_tcp(None, |_| false).unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let id = UniqueId {
            addresses: vec![Address::Tcp(listener.local_addr().unwrap())],
            ..id.clone()
        };
        let seen = Arc::new(Mutex::new(Vec::new()));
        let sees = seen.clone();
        thread::spawn(move || {
            let near = listener.accept().unwrap().0;
            let far = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
            let (to_meeting, to_rank) = match flip {
                Flip::No => (None, None),
                Flip::ToMeeting(at) => (Some(at), None),
                Flip::ToRank(at) => (None, Some(at)),
            };
            let back = (far.try_clone().unwrap(), near.try_clone().unwrap(), sees.clone());
            let back = thread::spawn(move || pass(back.0, back.1, &back.2, to_rank));
            pass(near, far, &sees, to_meeting);
            back.join().unwrap();
        });
        Relay { id, seen }
    }

    fn saw(&self, what: &str) -> bool {
        let seen = self.seen.lock().unwrap();
        seen.windows(what.len()).any(|part| part == what.as_bytes())
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, seen: &Mutex<Vec<u8>>, flip: Option<usize>) {
    let (mut chunk, mut passed) = ([0; 4096], 0);
    while let Ok(n @ 1..) = from.read(&mut chunk) {
        seen.lock().unwrap().extend_from_slice(&chunk[..n]);
        if let Some(at) = flip.and_then(|at| at.checked_sub(passed)).filter(|&at| at < n) {
            chunk[at] ^= 1;
        }
        passed += n;
        if to.write_all(&chunk[..n]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

/// Rank 0 comes by a Unix socket, and rank 1 by the relay.
fn ranks<'a>(id: &'a UniqueId, relay: &'a Relay, protection: [Protection; 2]) -> Vec<Joining<'a>> {
    let joining = |(rank, id)| Joining {
        protection: protection[rank],
        knobs: vec![("encryption".into(), format!("{:?}", protection[rank]))],
        network: Network::Never,
        ..joining(id, 2, rank)
    };
    [id, &relay.id].into_iter().enumerate().map(joining).collect()
}

#[test]
fn a_meeting_shows_what_is_said_there_unless_it_is_encrypted() {
    for protection in [
        Protection::Off,
        Protection::Check,
        Protection::Authenticate,
        Protection::Encrypt,
    ] {
        let id = UniqueId::local().unwrap();
        let relay = Relay::before(&id, Flip::No);
        let members = join_all(ranks(&id, &relay, [protection; 2]));
        assert!(members.iter().all(Result::is_ok), "{protection:?}");
        assert_eq!(
            relay.saw(&format!("{protection:?}")),
            protection != Protection::Encrypt
        );
        assert!(relay.saw("wire")); // the hello
    }
}

#[test]
fn a_meeting_is_not_altered_on_the_way() {
    // Past the handshakes, whose bytes are verified without any protection.
    for (protection, keys) in [
        (Protection::Authenticate, 48),
        (Protection::Encrypt, 48),
        (Protection::Check, 0),
    ] {
        let (to_meeting, to_rank) = (72 + 32 + keys, 72 + 33 + keys);
        for at in [3, 4, 30] {
            let id = UniqueId::local().unwrap();
            let relay = Relay::before(&id, Flip::ToMeeting(to_meeting + at));
            for outcome in join_all(ranks(&id, &relay, [protection; 2])) {
                let error = outcome.map(|member| member.rank()).unwrap_err().to_string();
                assert!(
                    error.contains("rank 1 could not join") && error.contains("altered"),
                    "{error}"
                );
            }
        }
        let id = UniqueId::local().unwrap();
        let relay = Relay::before(&id, Flip::ToRank(to_rank + 20));
        let error = join_all(ranks(&id, &relay, [protection; 2])).remove(1);
        let error = error.map(|member| member.rank()).unwrap_err().to_string();
        assert!(error.contains("altered"), "{error}");
    }
}

#[test]
fn ranks_that_are_protected_otherwise_are_told() {
    use Protection::{Authenticate, Check, Encrypt, Off};
    for protection in [
        [Off, Encrypt],
        [Encrypt, Off],
        [Authenticate, Encrypt],
        [Off, Check],
    ] {
        let id = UniqueId::local().unwrap();
        let relay = Relay::before(&id, Flip::No);
        for outcome in join_all(ranks(&id, &relay, protection)) {
            let error = outcome.map(|member| member.rank()).unwrap_err().to_string();
            let [a, b] = protection.map(|protection| format!("{protection:?}"));
            let is_named = |rank: usize, value: &str| error.contains(&format!("{value:?} on rank {rank}"));
            assert!(is_named(0, &a) && is_named(1, &b), "{error}");
            assert!(error.contains("give all ranks the same"), "{error}");
        }
    }
}
