//! [`Secret`]: the key that all ranks of a communicator share.

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
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}
