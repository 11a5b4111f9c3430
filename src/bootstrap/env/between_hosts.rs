//! Ranks on several hosts: what they need to know to meet over the network, and the meeting.

use super::{Launch, Turn, secret};
use crate::{
    bootstrap::UniqueId,
    net::{CommId, Secret},
    types::{Error, Result},
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::{
    fmt,
    net::{SocketAddr, ToSocketAddrs},
};
use zeroize::Zeroizing;

/// Where and by what keys the ranks of a job meet in a turn: the same on all hosts but for the rank.
#[derive(Debug)]
pub(super) struct Appointment {
    /// The host of rank 0, which listens there.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) rank: usize,
    pub(super) comm: CommId,
    pub(super) secret: Secret,
}

impl Appointment {
    /// # Errors
    /// [`Error::Usage`] with what to set when there is no secret, address or port.
    pub(super) fn new(launch: &Launch, turn: Turn) -> Result<Appointment> {
        let user_secret = secret::read()?;
        let host = launch.master.clone().ok_or_else(|| {
            Error::usage(
                "ranks on several hosts need the address of rank 0's host: set MASTER_ADDR to it, and MASTER_PORT or \
                 CCL_MASTER_PORT to a port, the same on all ranks",
            )
        })?;
        let (comm, secret) = keys(user_secret.bytes(), &launch.job, turn)?;
        Ok(Appointment {
            host,
            port: launch.master_port.number()?,
            rank: launch.rank,
            comm,
            secret,
        })
    }
}

/// The id by which all ranks of the appointment join. Rank 0 listens from here on.
///
/// # Errors
/// [`Error::Init`] when the port is in use, [`Error::Usage`] when rank 0's host is not known.
pub(super) fn between_hosts(appointment: Appointment) -> Result<UniqueId> {
    let Appointment {
        host,
        port,
        rank,
        comm,
        secret,
    } = appointment;
    if rank == 0 {
        return UniqueId::agreed_here(port, comm, secret);
    }
    let unknown = |e: &dyn fmt::Display| {
        Error::usage(format!(
            "rank {rank} does not know the host of rank 0: MASTER_ADDR (or CCL_MASTER_ADDR) is {host}: {e}"
        ))
    };
    let at = (host.as_str(), port).to_socket_addrs().map_err(|e| unknown(&e))?;
    let at: Vec<SocketAddr> = at.collect();
    match at[..] {
        [] => Err(unknown(&"it has no address")),
        _ => Ok(UniqueId::agreed(&at, comm, secret)),
    }
}

/// The name of a turn's communicator, and its secret, which is made of the user's: each turn of each job has its own, so
/// that nothing said in one is of use in another. The name does not depend on the user's secret, so that ranks with
/// different ones learn just that.
fn keys(user_secret: &[u8], job: &[String], turn: Turn) -> Result<(CommId, Secret)> {
    let derive = |key: &[u8]| -> Result<Zeroizing<[u8; 32]>> {
        // HMAC takes keys of any length.
        let mut mac =
            Hmac::<Sha256>::new_from_slice(key).map_err(|_| Error::internal("HMAC refused a key"))?;
        mac.update(b"ccl meeting between hosts 1");
        mac.update(&turn.0.to_le_bytes());
        for part in job {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part.as_bytes());
        }
        Ok(Zeroizing::new(mac.finalize().into_bytes().into()))
    };
    let mut comm = CommId::default();
    comm.copy_from_slice(&derive(b"name")?[..16]);
    Ok((comm, Secret::new(&*derive(user_secret)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_depend_on_all_that_they_are_made_of() {
        let job = |text: &str| vec![text.to_owned()];
        let made = [
            keys(b"a secret of one user", &job("A=1"), Turn(0)),
            keys(b"a secret of another", &job("A=1"), Turn(0)),
            keys(b"a secret of one user", &job("A=2"), Turn(0)),
            keys(b"a secret of one user", &job("A=1"), Turn(1)),
            keys(b"a secret of one user", &[job("A="), job("1")].concat(), Turn(0)),
        ]
        .map(Result::unwrap);
        for (i, (comm, secret)) in made.iter().enumerate() {
            assert_ne!(&secret.bytes()[..16], comm);
            for (j, (other_comm, other_secret)) in made[..i].iter().enumerate() {
                assert_eq!(comm == other_comm, (i, j) == (1, 0)); // which differ in the user's secret alone
                assert_ne!(secret.bytes(), other_secret.bytes());
            }
        }
        let (comm, secret) = keys(b"a secret of one user", &job("A=1"), Turn(0)).unwrap();
        assert_eq!((comm, secret.bytes()), (made[0].0, made[0].1.bytes()));
    }
}
