//! A rank's links to all others, made on first use.

use crate::{net::Parcel, types::Error};

/// Carries parcels between the transports of two ranks: implemented by the floor that knows the peers' addresses.
pub(crate) trait Opener: Send {
    /// Hands `parcel` to `peer` and returns the peer's welcome. Blocks until the peer's process took it, its death,
    /// a failure of the communicator, or the deadline of operations.
    fn open(&self, peer: usize, parcel: Parcel) -> Result<Parcel, Error>;

    /// The parcels that have come in since the last time, with the ranks that sent them. Cheap when there are none.
    fn arrivals(&self) -> Vec<(usize, Parcel)>;
}
