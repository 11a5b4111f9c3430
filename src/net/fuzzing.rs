//! Targets of this floor: see [`crate::fuzzing`].

use super::{
    Frame, Hello, Presence, Protection, Rails, Said, Secret, Way,
    frame::Inbox,
    handshake::{Client, Server},
    interfaces::{Interface, Kind, fastest, list},
};
use crate::{fuzzing::part, types::Cause};
use std::net::IpAddr;

/// What comes over a connection, in pieces.
pub(crate) fn frame(bytes: &[u8]) {
    let mut inbox = Inbox::default();
    let mut rest = bytes;
    while let Some((piece, after)) = part(rest) {
        inbox.bytes.extend_from_slice(piece);
        loop {
            match inbox.next() {
                Ok(Some(frame)) => understand(frame),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        rest = after;
    }
}

fn understand(frame: Frame) {
    if let Ok(cause) = frame.message::<Cause>() {
        assert!(!cause.to_string().is_empty());
    }
    let _ = frame.into_parcel();
}

/// Either side of a handshake with somebody who holds no secret, or half of it.
pub(crate) fn handshake(bytes: &[u8]) {
    let Some((said, rest)) = bytes.split_first_chunk::<{ Hello::LEN }>() else {
        return;
    };
    let secret = || Secret::new(&[7; Secret::LEN]);
    if let Ok((server, _)) = Server::on_hello(said, [1; 32], |_| Ok(secret()))
        && let Some(proof) = rest.get(..server.awaits())
    {
        assert!(server.on_proof(proof).is_err(), "somebody guessed the proof");
    }
    for protection in [Protection::Off, Protection::Encrypt] {
        let ours = Hello {
            role: super::Role::Link,
            from: 1,
            to: 2,
            comm: [3; 16],
            protection,
            has_aes: true,
            nonce: [4; 32],
        };
        if let Ok((client, _)) = Client::begin(ours, secret()).0.on_hello(said)
            && let Some(answer) = rest.get(..client.awaits())
        {
            assert!(client.on_proof(answer).is_err(), "somebody guessed the proof");
        }
    }
}

/// What a user says of interfaces, subnets, versions of IP and ports, and what there is: lines of "name speed facts subnets".
pub(crate) fn interfaces(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let mut said = || lines.next().filter(|line| !line.is_empty());
    // What is not said comes from the environment, where nothing is.
    let said = Said {
        interfaces: said(),
        subnets: said(),
        family: said(),
        ports: said(),
    };
    let presence = match Presence::new(said) {
        Ok(presence) => presence,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    if let Some(ports) = &presence.ports {
        assert!(0 < *ports.start() && ports.start() <= ports.end());
    }
    let all: Vec<Interface> = lines.map(interface).collect();
    let _ = (fastest(&all), list(&all));
    let Ok(ways) = presence.selection.ways(&all, Way::MOST) else {
        return;
    };
    assert!(ways.len() <= Way::MOST);
    let (ours, theirs) = ways.split_at(ways.len() / 2);
    for most in [None, Some(1), Some(8)] {
        let rails = Rails::new(ours, theirs, most);
        let to: Vec<IpAddr> = rails.together.iter().map(|rail| rail.to).collect();
        assert!(most.is_none_or(|most| to.len() <= most));
    }
}

fn interface(line: &str) -> Interface {
    let mut words = line.split_whitespace();
    let name = words.next().unwrap_or_default().to_owned();
    let speed = words.next().and_then(|word| word.parse().ok());
    let facts = words.next().unwrap_or_default();
    Interface {
        name,
        nets: words.filter_map(|word| word.parse().ok()).collect(),
        is_up: !facts.contains('-'),
        kind: match facts {
            _ if facts.contains('d') => Kind::Detour,
            _ if facts.contains('i') => Kind::Inside,
            _ if facts.contains('l') => Kind::Loopback,
            _ => Kind::Ordinary,
        },
        speed,
        is_default: facts.contains('*'),
    }
}
