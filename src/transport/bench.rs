//! Two ends of a link for `benches/transport.rs`. Not for use by programs.

use super::{Header, Link, Wires, inproc, links::Links};
use crate::{mem::Region, types::Error};

/// One of two ranks that are threads of this process.
pub struct End {
    links: Links,
    peer: usize,
}

/// Two ranks joined by shared memory.
pub fn shm_pair() -> Result<[End; 2], Error> {
    let mut links = inproc::links(2)?.into_iter();
    let mut end = |peer| {
        let links = links
            .next()
            .ok_or_else(|| Error::internal("two ranks were asked for"))?;
        Ok(End { links, peer })
    };
    Ok([end(1)?, end(0)?])
}

impl End {
    /// Sends a message as an executor does: waits for credit, copies `body` in.
    ///
    /// # Panics
    /// When the link does not work.
    #[inline]
    pub fn send(&self, lane: usize, header: Header, body: &[u8]) {
        wait(|| {
            let Some(link) = self.links.to(self.peer)? else {
                return Ok(None);
            };
            let Some(room) = link.reserve(lane, body.len())? else {
                return Ok(None);
            };
            room.copy_from(&Region::of(body));
            link.commit(lane, header);
            Ok(Some(()))
        })
    }

    /// Waits for a message of the length of `body`, and copies it out.
    ///
    /// # Panics
    /// When the link does not work.
    #[inline]
    pub fn recv(&self, lane: usize, body: &mut [u8]) -> Header {
        let into = Region::of_mut(body);
        wait(|| {
            let Some(link) = self.links.from(self.peer)? else {
                return Ok(None);
            };
            let Some(message) = link.peek(lane)? else {
                return Ok(None);
            };
            let taken = link.take(lane, &into)?;
            link.release(lane);
            Ok(taken.then_some(message.header))
        })
    }
}

/// Spins, and yields now and then: the other thread may need this processor.
#[inline]
fn wait<T>(look: impl Fn() -> Result<Option<T>, Error>) -> T {
    loop {
        for _ in 0..1000 {
            match look() {
                Ok(Some(found)) => return found,
                Ok(None) => std::hint::spin_loop(),
                Err(err) => panic!("{err}"),
            }
        }
        std::thread::yield_now();
    }
}
