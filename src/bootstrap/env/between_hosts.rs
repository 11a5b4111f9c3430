//! Ranks on several hosts: what they need to know to meet over the network, and the meeting.

use super::{Launch, Turn, secret};
use crate::{
    bootstrap::UniqueId,
    net::{CommId, Secret},
    types::{Error, Result},
};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use zeroize::Zeroizing;

/// Where and by what keys the ranks of a job meet in a turn: the same on all hosts but for the rank.
#[derive(Debug)]
#[expect(dead_code, reason = "for the meeting over TCP")]
pub(super) struct Appointment {
    /// The host of rank 0, which listens there.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) rank: usize,
    pub(super) ranks: usize,
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
            ranks: launch.ranks,
            comm,
            secret,
        })
    }
}

/// The id by which all ranks of the appointment join.
///
/// # Errors
/// [`Error::Usage`]: there is no such transport yet.
pub(super) fn between_hosts(appointment: &Appointment) -> Result<UniqueId> {
    let Appointment {
        rank,
        ranks,
        host,
        port,
        ..
    } = appointment;
    Err(Error::usage(format!(
        "ranks on several hosts need the TCP transport, which this version does not have yet (rank {rank} of \
         {ranks}, rank 0 at {host}:{port})"
    )))
}

/// The name and the secret of a turn's communicator, made of the user's secret: each turn of each job has its own, so
/// that nothing said in one is of use in another.
fn keys(user_secret: &[u8], job: &[String], turn: Turn) -> Result<(CommId, Secret)> {
    let derive = |label: &str| -> Result<Zeroizing<[u8; 32]>> {
        // HMAC takes keys of any length.
        let mut mac =
            Hmac::<Sha256>::new_from_slice(user_secret).map_err(|_| Error::internal("HMAC refused a key"))?;
        mac.update(label.as_bytes());
        mac.update(&turn.0.to_le_bytes());
        for part in job {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part.as_bytes());
        }
        Ok(Zeroizing::new(mac.finalize().into_bytes().into()))
    };
    let mut comm = CommId::default();
    comm.copy_from_slice(&derive("ccl meeting between hosts 1: name")?[..16]);
    Ok((
        comm,
        Secret::new(&*derive("ccl meeting between hosts 1: secret")?),
    ))
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
            for (other_comm, other_secret) in &made[..i] {
                assert_ne!(comm, other_comm);
                assert_ne!(secret.bytes(), other_secret.bytes());
            }
        }
        let (comm, secret) = keys(b"a secret of one user", &job("A=1"), Turn(0)).unwrap();
        assert_eq!((comm, secret.bytes()), (made[0].0, made[0].1.bytes()));
    }
}
