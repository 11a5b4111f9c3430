//! [`Token`]: by which a rank finds that its peer is a thread of the same process.

use crate::sys::per_process::PerProcess;
use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Random bytes that a link's sender hands over, and that are known in its process alone, for that link, until the receiver has
/// come for them, or the link is gone. A forked child knows none. They are good for no other link: so who was handed some and
/// hands them back is not taken for a neighbour.
pub(super) struct Token([u8; Token::BYTES]);

/// The tokens of links whose receivers have not come.
static ISSUED: PerProcess<Mutex<Issued>> = PerProcess::new();

/// With the link that each is for: see `Ways::link`.
type Issued = HashMap<[u8; Token::BYTES], [u64; 3]>;

fn issued() -> MutexGuard<'static, Issued> {
    let issued = ISSUED.get_or_try_init(|| Ok::<_, Infallible>(Mutex::default()));
    let issued = issued.unwrap_or_else(|never| match never {});
    issued.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Token {
    pub(super) const BYTES: usize = 16;

    /// That of a sender which has none: no receiver is its neighbour.
    pub(super) const NONE: [u8; Token::BYTES] = [0; Token::BYTES];

    pub(super) fn new(link: [u64; 3]) -> io::Result<Token> {
        let mut bytes = [0; Token::BYTES];
        getrandom::fill(&mut bytes)?;
        issued().insert(bytes, link);
        Ok(Token(bytes))
    }

    pub(super) fn bytes(&self) -> [u8; Token::BYTES] {
        self.0
    }

    /// Whether a thread of this process has come for it. What the other rank says of that counts for nothing.
    pub(super) fn is_taken(&self) -> bool {
        !issued().contains_key(&self.0)
    }

    /// Whether the one that sent these for `link` is a thread of this process. It is asked once.
    pub(super) fn is_ours(bytes: &[u8; Token::BYTES], link: [u64; 3]) -> bool {
        let mut issued = issued();
        issued.get(bytes) == Some(&link) && issued.remove(bytes).is_some()
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        issued().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::fork;

    const LINK: [u64; 3] = [7, 0, 1];

    #[test]
    fn it_is_known_once_in_its_process() {
        fork::watch().unwrap();
        let [token, other] = [LINK, LINK].map(|link| Token::new(link).unwrap());
        let bytes = token.bytes();
        assert!(bytes != other.bytes() && !Token::is_ours(&Token::NONE, LINK));
        let child = fork::child(|| !Token::is_ours(&bytes, LINK));
        let (_, status) = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
            .unwrap()
            .unwrap();
        assert_eq!(status.exit_status(), Some(0));
        // Handed back on the way from the other rank, or in another communicator.
        assert!(!Token::is_ours(&bytes, [7, 1, 0]) && !Token::is_ours(&bytes, [8, 0, 1]));
        assert!(!token.is_taken());
        assert!(Token::is_ours(&bytes, LINK));
        assert!(token.is_taken() && !Token::is_ours(&bytes, LINK));
        let bytes = other.bytes();
        drop(other);
        assert!(!Token::is_ours(&bytes, LINK));
    }
}
