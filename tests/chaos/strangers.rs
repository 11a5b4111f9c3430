//! Those who connect to whatever listens and say something that is not for it.

use super::leaks::Place;
use std::{
    io::{self, Read, Write},
    net::{Ipv4Addr, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::net::{SocketAddr, UnixStream},
    },
    time::Duration,
};

/// Somebody's connection, which is kept for a while.
pub(crate) enum Stranger {
    Tcp(#[expect(dead_code, reason = "it is open")] TcpStream),
    Unix(#[expect(dead_code, reason = "it is open")] UnixStream),
}

/// Connects and says something. The connection, if it is not closed at once.
pub(crate) fn bother(place: &Place, random: &mut fastrand::Rng) -> io::Result<Option<Stranger>> {
    let words = words(random);
    let keeps = random.u8(0..4) == 0;
    let soon = Some(Duration::from_millis(200));
    match place {
        Place::Tcp(port) => {
            let to = (Ipv4Addr::LOCALHOST, *port).into();
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(2))?;
            stream.set_read_timeout(Some(Duration::from_millis(1)))?;
            stream.set_write_timeout(soon)?;
            talk(&mut stream, &words)?;
            Ok(keeps.then_some(Stranger::Tcp(stream)))
        }
        Place::Unix(name) => {
            let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
            stream.set_read_timeout(Some(Duration::from_millis(1)))?;
            stream.set_write_timeout(soon)?;
            talk(&mut stream, &words)?;
            Ok(keeps.then_some(Stranger::Unix(stream)))
        }
    }
}

fn talk(stream: &mut (impl Read + Write), words: &[u8]) -> io::Result<()> {
    stream.write_all(words)?;
    let _ = stream.read(&mut [0; 100]);
    Ok(())
}

/// Nothing, noise, the beginning of a hello, a hello of nobody's, or another protocol.
fn words(random: &mut fastrand::Rng) -> Vec<u8> {
    let noise = |random: &mut fastrand::Rng, most: usize| {
        let len = random.usize(0..most);
        (0..len).map(|_| random.u8(..)).collect::<Vec<u8>>()
    };
    match random.u8(0..6) {
        0 => Vec::new(),
        1 => noise(random, 300),
        2 => b"ccl\0wire"[..random.usize(1..=8)].to_vec(),
        3 => [
            &b"ccl\0wire"[..],
            &4u32.to_le_bytes(),
            &[random.u8(0..7), 0, 0, 0],
            &noise(random, 200),
        ]
        .concat(),
        4 => [&b"ccl\0env\0"[..], &noise(random, 40)].concat(),
        _ => b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_vec(),
    }
}
