//! The proofs that this process has made: its ranks, and communicators with as many ranks, use the same schedules.

use crate::{
    plan::{
        algo::{Algorithm, Request},
        cost::Order,
        groups::Groups,
        verify::{Proof, verify_in_order},
    },
    sys::per_process::PerProcess,
    types::{Collective, Error},
};
use std::{
    convert::Infallible,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// The schedules of all ranks of a call.
#[derive(Debug, Clone, PartialEq)]
struct Key {
    algorithm: &'static str,
    collective: Collective,
    ranks: usize,
    order: Order,
    /// Where they depend on that.
    groups: Option<Groups>,
}

/// A proof, or why there is none; threads that come while another makes it wait.
type Place = Arc<OnceLock<Result<Arc<Proof>, String>>>;

/// The proof of `algorithm`'s schedules for all ranks, and how long it took if it was made just now.
///
/// # Errors
/// [`Error::Internal`] when they are wrong.
pub(super) fn proof(
    algorithm: &Algorithm,
    (collective, ranks, order): (Collective, usize, Order),
    groups: Option<&Groups>,
) -> Result<(Arc<Proof>, Option<Duration>), Error> {
    let place = place(Key {
        algorithm: algorithm.name,
        collective,
        ranks,
        order,
        groups: algorithm.concerned(groups).cloned(),
    });
    let mut took = None;
    let made = place.get_or_init(|| {
        let began = Instant::now();
        let of = |rank| {
            let request = Request {
                collective,
                ranks,
                rank,
            };
            algorithm.schedule(&request, groups)
        };
        let proof = verify_in_order(collective, ranks, order, of).map_err(|flaw| flaw.to_string());
        took = Some(began.elapsed());
        proof.map(Arc::new)
    });
    match made {
        Ok(proof) => Ok((proof.clone(), took)),
        Err(flaw) => Err(Error::internal(format!(
            "the {} schedule of {} is wrong: {flaw}",
            algorithm.name,
            collective.name()
        ))),
    }
}

/// The place of a proof, made if there is none. The one that was used longest ago gives way.
fn place(key: Key) -> Place {
    static PROOFS: PerProcess<Mutex<Vec<(Key, Place)>>> = PerProcess::new();
    let Ok(proofs) = PROOFS.get_or_try_init(|| Ok::<_, Infallible>(Mutex::default()));
    let mut proofs = proofs.lock().unwrap_or_else(PoisonError::into_inner);
    let most = kept(KEPT, key.ranks);
    match proofs.iter().position(|(known, _)| *known == key) {
        Some(at) => proofs[..=at].rotate_right(1),
        None => {
            proofs.truncate(most - 1);
            proofs.insert(0, (key, Place::default()));
        }
    }
    proofs[0].1.clone()
}

/// How many proofs or schedules are kept, at `least`: a broadcast has one for each root, which may go round all ranks while another operation
/// does so, too.
pub(super) fn kept(least: usize, ranks: usize) -> usize {
    least.max(2 * ranks.min(512))
}

/// Proofs kept, at least.
const KEPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::algo::fitting;
    use std::thread;

    #[test]
    fn many_threads_make_one_proof() {
        let ring = fitting(Collective::AllReduce).find(|algorithm| algorithm.name == "ring");
        // So many ranks as no other test has.
        let of = |ranks| proof(ring.unwrap(), (Collective::AllReduce, ranks, Order::Any), None).unwrap();
        let made = thread::scope(|scope| {
            let all: Vec<_> = (0..8).map(|_| scope.spawn(|| of(1237))).collect();
            let took = all.into_iter().map(|thread| thread.join().unwrap().1);
            took.filter(Option::is_some).count()
        });
        assert_eq!(made, 1);
        assert_eq!(of(1237).0.ranks, 1237);
        assert_eq!(of(1238).0.ranks, 1238);
    }
}
