//! The keys of a connection that is protected: Noise NNpsk0, of the secret that both sides hold.
//!
//! Both messages go along with the handshake's proofs, and all that was said before is the prologue. The keys are the
//! connection's own and depend on what both sides forget, so that nobody who learns the secret later can read what was said.
//!
//! Source: The Noise Protocol Framework, revision 34.

use super::{
    Secret,
    seal::{Cipher, Guard, Protection},
};
use snow::{Builder, HandshakeState};
use zeroize::Zeroizing;

/// Bytes of each of the two messages: a public key, and the tag of nothing.
pub(super) const MESSAGE: usize = 48;

const PATTERN: &str = "Noise_NNpsk0_25519_ChaChaPoly_SHA256";

/// What both sides know before.
pub(super) struct Terms<'a> {
    pub(super) protection: Protection,
    /// That of the records; the hellos, which are part of `said`, have it follow.
    pub(super) cipher: Cipher,
    pub(super) secret: &'a Secret,
    pub(super) said: &'a [&'a [u8]],
}

/// The client after its message.
pub(super) struct Initiator {
    state: HandshakeState,
    protection: Protection,
    cipher: Cipher,
}

impl Initiator {
    /// Begins; the bytes are to be sent.
    pub(super) fn begin(terms: &Terms<'_>) -> Option<(Initiator, [u8; MESSAGE])> {
        let mut state = build(terms, true)?;
        let message = write(&mut state)?;
        let initiator = Initiator {
            state,
            protection: terms.protection,
            cipher: terms.cipher,
        };
        Some((initiator, message))
    }

    /// Takes the server's message.
    pub(super) fn finish(mut self, message: &[u8]) -> Option<Box<Guard>> {
        self.state.read_message(message, &mut []).ok()?;
        let (ours, theirs) = self.state.dangerously_get_raw_split();
        let [ours, theirs] = [ours, theirs].map(Zeroizing::new);
        Guard::new(self.protection, self.cipher, &ours, &theirs)
    }
}

/// The server takes the client's message; the bytes are to be sent.
pub(super) fn respond(terms: &Terms<'_>, message: &[u8]) -> Option<(Box<Guard>, [u8; MESSAGE])> {
    let mut state = build(terms, false)?;
    state.read_message(message, &mut []).ok()?;
    let answer = write(&mut state)?;
    let (theirs, ours) = state.dangerously_get_raw_split();
    let [ours, theirs] = [ours, theirs].map(Zeroizing::new);
    let guard = Guard::new(terms.protection, terms.cipher, &ours, &theirs)?;
    Some((guard, answer))
}

fn build(terms: &Terms<'_>, initiates: bool) -> Option<HandshakeState> {
    let key = terms.secret.derive(&[b"ccl noise psk 1"])?;
    let prologue = terms.said.concat();
    let builder = Builder::new(PATTERN.parse().ok()?)
        .psk(0, &key)
        .and_then(|builder| builder.prologue(&prologue))
        .ok()?;
    let state = match initiates {
        true => builder.build_initiator(),
        false => builder.build_responder(),
    };
    state.ok()
}

fn write(state: &mut HandshakeState) -> Option<[u8; MESSAGE]> {
    let mut message = [0; MESSAGE];
    let len = state.write_message(&[], &mut message).ok()?;
    (len == MESSAGE).then_some(message)
}
