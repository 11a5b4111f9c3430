//! [`UniqueId`]: what a rank must be given to join a communicator.

use super::control::{self, Command};
use crate::{
    log,
    net::{Address, CommId, Secret, VERSION, fill_random},
    types::{Error, Result},
};
use std::fmt;
use tracing::info;

/// Names a communicator that is to be made, says where its ranks meet, and holds the secret by which they know each
/// other.
///
/// One process makes it and hands its 128 bytes to all ranks, by whatever way it has: a pipe, MPI, a file that only
/// the user can read. That process need not be a rank itself, but it must live until all ranks have joined. An id
/// makes one communicator. Whoever holds the bytes can join, so they are to be kept from others.
///
/// The secret is never printed and is wiped from memory when the last copy is dropped; the arrays of
/// [`UniqueId::to_bytes`] are their owner's to wipe.
#[derive(Clone)]
pub struct UniqueId {
    pub(super) address: Address,
    pub(super) comm: CommId,
    pub(super) secret: Secret,
}

impl UniqueId {
    /// Bytes of an id.
    pub const LEN: usize = 128;

    /// A new id, whose ranks meet in this process. Starts the library's control thread if it does not run yet.
    ///
    /// # Errors
    /// [`Error::System`] when the system has no socket, thread or randomness to give.
    pub fn new() -> Result<UniqueId> {
        log::begin();
        let control = control::start()?;
        let (mut comm, mut secret) = (CommId::default(), zeroize::Zeroizing::new([0; Secret::LEN]));
        fill_random(&mut comm)?;
        fill_random(&mut *secret)?;
        let id = UniqueId {
            address: control.address(),
            comm,
            secret: Secret::new(&secret),
        };
        control.post(Command::Meet {
            comm,
            secret: id.secret.clone(),
        })?;
        info!("id: made; its ranks meet here, at {}", id.address);
        Ok(id)
    }

    /// The id as bytes, for the way to the other ranks.
    pub fn to_bytes(&self) -> [u8; UniqueId::LEN] {
        let mut bytes = [0; UniqueId::LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[ADDRESS..COMM].copy_from_slice(&self.address.encode());
        bytes[COMM..SECRET].copy_from_slice(&self.comm);
        bytes[SECRET..REST].copy_from_slice(self.secret.bytes());
        bytes
    }

    /// The id that [`UniqueId::to_bytes`] made these bytes of.
    ///
    /// # Errors
    /// [`Error::Invalid`] when they are not an id, or one of a version of the library that this one cannot talk to.
    pub fn from_bytes(bytes: [u8; UniqueId::LEN]) -> Result<UniqueId> {
        let bytes = zeroize::Zeroizing::new(bytes);
        if bytes[..8] != MAGIC {
            return Err(Error::invalid(
                "these 128 bytes are not a unique id: pass those that cclGetUniqueId wrote, unchanged",
            ));
        }
        let version: [u8; 4] = part(&bytes, 8)?;
        if u32::from_le_bytes(version) != VERSION {
            return Err(Error::invalid(format!(
                "the unique id is of version {} of the protocol, this library speaks version {VERSION}: use the same \
                 version of ccl in all processes",
                u32::from_le_bytes(version)
            )));
        }
        let address = Address::decode(&part(&bytes, ADDRESS)?);
        let (Some(address), true) = (address, bytes[REST..].iter().all(|&b| b == 0)) else {
            return Err(Error::invalid(
                "the unique id is damaged: pass its 128 bytes unchanged",
            ));
        };
        let secret = zeroize::Zeroizing::new(part(&bytes, SECRET)?);
        Ok(UniqueId {
            address,
            comm: part(&bytes, COMM)?,
            secret: Secret::new(&secret),
        })
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let comm: String = self.comm.iter().map(|b| format!("{b:02x}")).collect();
        write!(f, "UniqueId({comm} at {})", self.address)
    }
}

/// The `N` bytes at `at`.
fn part<const N: usize>(bytes: &[u8; UniqueId::LEN], at: usize) -> Result<[u8; N]> {
    let part = bytes.get(at..).and_then(|rest| rest.first_chunk());
    part.copied()
        .ok_or_else(|| Error::internal("a part of the unique id lies outside it"))
}

const MAGIC: [u8; 8] = *b"ccl\0uid\0";
const ADDRESS: usize = 12;
const COMM: usize = ADDRESS + Address::LEN;
const SECRET: usize = COMM + 16;
const REST: usize = SECRET + Secret::LEN;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip_and_hide_the_secret() {
        let id = UniqueId::new().unwrap();
        let back = UniqueId::from_bytes(id.to_bytes()).unwrap();
        assert_eq!(back.to_bytes(), id.to_bytes());
        let hex: String = id.secret.bytes().iter().map(|b| format!("{b:02x}")).collect();
        let shown = format!("{id:?} {id:#?} {:?}", id.secret);
        assert!(
            !shown.contains(&hex[..8]) && shown.contains("unix:@ccl-"),
            "{shown}"
        );
        assert_ne!(UniqueId::new().unwrap().to_bytes(), id.to_bytes());
    }

    #[test]
    fn damage_is_found() {
        let good = UniqueId::new().unwrap().to_bytes();
        for (at, text) in [
            (0, "not a unique id"),
            (8, "is of version"),
            (ADDRESS, "damaged"),
            (ADDRESS + 20, "damaged"),
            (127, "damaged"),
        ] {
            let mut bytes = good;
            bytes[at] ^= 0x55;
            let error = UniqueId::from_bytes(bytes).unwrap_err().to_string();
            assert!(error.contains(text), "{at}: {error}");
        }
        assert!(UniqueId::from_bytes([0; UniqueId::LEN]).is_err());
    }
}
