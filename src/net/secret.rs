//! [`Secret`]: the key that all ranks of a communicator share.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::{fmt, sync::Arc};
use zeroize::Zeroizing;

/// 32 random bytes. Never printed, wiped when the last copy is dropped; copies share one place in memory.
#[derive(Clone)]
pub(crate) struct Secret(Arc<Zeroizing<[u8; Secret::LEN]>>);

impl Secret {
    pub(crate) const LEN: usize = 32;

    /// The secret with these bytes.
    pub(crate) fn new(bytes: &[u8; Secret::LEN]) -> Self {
        Secret(Arc::new(Zeroizing::new(*bytes)))
    }

    pub(crate) fn bytes(&self) -> &[u8; Secret::LEN] {
        &self.0
    }

    /// Another secret that follows from this one and `info`, and says nothing about it: the first block of HKDF-Expand with
    /// HMAC-SHA-256. This one is uniformly random, so that there is nothing to extract. It cannot fail: HMAC takes keys of any
    /// length.
    ///
    /// Source: RFC 5869, section 2.3.
    pub(crate) fn derive(&self, info: &[&[u8]]) -> Option<Zeroizing<[u8; Secret::LEN]>> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.bytes()).ok()?;
        info.iter().for_each(|part| mac.update(part));
        mac.update(&[1]);
        Some(Zeroizing::new(mac.finalize().into_bytes().into()))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes<const N: usize>(hex: &str) -> [u8; N] {
        std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
    }

    #[test]
    fn what_is_derived_is_that_of_the_rfc() {
        // RFC 5869, appendix A.1: the first 32 bytes of the output.
        let key: [u8; 32] = bytes("077709362c2e32df0ddc3f0dc47bba6390b6c73bb50f9c3122ec844ad7c2b3e5");
        let info: [u8; 10] = bytes("f0f1f2f3f4f5f6f7f8f9");
        let wanted: [u8; 32] = bytes("3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
        let derived = Secret::new(&key).derive(&[&info[..3], &info[3..]]);
        assert_eq!(*derived.unwrap(), wanted);
    }
}
