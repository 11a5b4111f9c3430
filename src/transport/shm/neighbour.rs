//! [`Token`]: by which a rank finds that its peer is a thread of the same process.

use crate::sys::per_process::PerProcess;
use std::{
    collections::HashSet,
    convert::Infallible,
    io,
    sync::{Mutex, MutexGuard, PoisonError},
};

/// Random bytes that a link's sender hands over, and that are known in its process alone until the receiver has come for
/// them, or the link is gone. A forked child knows none.
pub(super) struct Token([u8; Token::BYTES]);

/// The tokens of links whose receivers have not come.
static ISSUED: PerProcess<Mutex<HashSet<[u8; Token::BYTES]>>> = PerProcess::new();

fn issued() -> MutexGuard<'static, HashSet<[u8; Token::BYTES]>> {
    let issued = ISSUED.get_or_try_init(|| Ok::<_, Infallible>(Mutex::default()));
    let issued = issued.unwrap_or_else(|never| match never {});
    issued.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Token {
    pub(super) const BYTES: usize = 16;

    /// That of a sender which has none: no receiver is its neighbour.
    pub(super) const NONE: [u8; Token::BYTES] = [0; Token::BYTES];

    pub(super) fn new() -> io::Result<Token> {
        let mut bytes = [0; Token::BYTES];
        getrandom::fill(&mut bytes)?;
        issued().insert(bytes);
        Ok(Token(bytes))
    }

    pub(super) fn bytes(&self) -> [u8; Token::BYTES] {
        self.0
    }

    /// Whether the one that sent these is a thread of this process. It is asked once.
    pub(super) fn is_ours(bytes: &[u8; Token::BYTES]) -> bool {
        issued().remove(bytes)
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

    #[test]
    fn it_is_known_once_in_its_process() {
        fork::watch().unwrap();
        let [token, other] = [Token::new().unwrap(), Token::new().unwrap()];
        let bytes = token.bytes();
        assert!(bytes != other.bytes() && !Token::is_ours(&Token::NONE));
        let child = fork::child(|| !Token::is_ours(&bytes));
        let (_, status) = rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty())
            .unwrap()
            .unwrap();
        assert_eq!(status.exit_status(), Some(0));
        assert!(Token::is_ours(&bytes));
        assert!(!Token::is_ours(&bytes));
        let bytes = other.bytes();
        drop(other);
        assert!(!Token::is_ours(&bytes));
    }
}
