//! Where bodies lie that are longer than their entries, and who may use the room when.

use super::{
    super::{
        pool::{BYTES, unread_by},
        room::CHUNK,
    },
    *,
};
use std::collections::BTreeSet;

#[test]
fn a_place_that_does_not_fit_is_refused() {
    for at in [BYTES as u32 - 499, OWN - 1, u32::MAX] {
        let (out, into) = pair(0);
        send(&out, 1, [0; 4], &[7; 500]);
        out.outbound().segment.entry(1, 0, SHALLOW).set_at(at);
        let (rank, what) = blamed(into.peek(1));
        assert_eq!(rank, 0);
        assert!(what.contains(&format!("500 bytes at {at}")), "{what}");
    }
}

/// What is written next lies where something lay just before, or as far from there as can be.
#[test]
fn rooms_stay_or_go_round() {
    const LONG: usize = 5 << 12;
    let stays = Lease::default();
    let at = |lease: &Lease, len| {
        let room = lease.take(len).unwrap();
        lease.give(room);
        room.at() as usize
    };
    let first = at(&stays, LONG);
    assert!((0..100).all(|_| at(&stays, LONG) == first));
    for chunks in 1..=4 {
        let goes = Lease::round_of(chunks);
        let fit = chunks * (CHUNK / LONG);
        let places: Vec<usize> = (0..3 * fit).map(|_| at(&goes, LONG)).collect();
        let apart: BTreeSet<usize> = places.iter().copied().collect();
        assert_eq!(apart.len(), fit);
        assert!(
            places.windows(fit + 1).all(|some| some[0] == some[fit]),
            "{places:?}"
        );
        // What is in flight is passed over.
        let held = goes.take(LONG).unwrap();
        assert!((0..2 * fit).all(|_| at(&goes, LONG) != held.at() as usize));
    }
}

/// However much the other lanes have in flight, each can send a message; and all comes as it was sent.
#[test]
fn no_lane_waits_for_anothers_bodies() {
    for chunks in [0, 1, 3] {
        each_lane_sends(Arc::new(Lease::round_of(chunks)));
    }
}

fn each_lane_sends(lease: Arc<Lease>) {
    let (out, into) = pair_with(0, &lease);
    // All but a few pages are held by other links.
    let mut held: Vec<_> = std::iter::from_fn(|| lease.take(MAX_MESSAGE)).collect();
    held.drain(..5).for_each(|room| lease.give(room));
    for turn in 0..20 {
        let body = |lane: usize, k: u32| sample(lane, 10 * turn + k, MAX_MESSAGE - lane);
        let mut sent = [0; LANES];
        for lane in (0..LANES)
            .cycle()
            .skip(turn as usize)
            .take(LANES * SHALLOW.messages())
        {
            let (header, body) = body(lane, sent[lane]);
            sent[lane] += u32::from(try_send(&out, lane, header, &body));
        }
        assert!(sent.iter().all(|&sent| sent > 0), "{sent:?}");
        assert!(sent.contains(&1), "{sent:?}");
        for (lane, &sent) in sent.iter().enumerate() {
            for k in 0..sent {
                assert_eq!(recv(&into, lane), body(lane, k));
            }
        }
    }
}

/// A slot of a lane's own takes memory no longer than somebody may read what lies in it.
#[test]
fn own_slots_are_given_back_once_they_are_read() {
    let lease = Arc::default();
    let (out, into) = pair_with(0, &lease);
    let _held: Vec<_> = std::iter::from_fn(|| lease.take(MAX_MESSAGE)).collect();
    for turn in 0..3 {
        for lane in [1, LANES - 1] {
            let (header, body) = sample(lane, turn, MAX_MESSAGE);
            assert!(try_send(&out, lane, header, &body));
        }
        out.leave();
        assert_eq!(out.outbound.get().unwrap().own_slots(), 2);
        assert_eq!(recv(&into, 1), sample(1, turn, MAX_MESSAGE));
        out.leave();
        assert_eq!(out.outbound.get().unwrap().own_slots(), 1);
        assert_eq!(recv(&into, LANES - 1), sample(LANES - 1, turn, MAX_MESSAGE));
        out.leave();
        assert_eq!(out.outbound.get().unwrap().own_slots(), 0);
    }
}

/// A body that several receivers read is there until the last of them has.
#[test]
fn one_body_for_several_receivers() {
    let lease = Arc::default();
    let links: Vec<_> = (0..3).map(|_| pair_with(0, &lease)).collect();
    let lens = [0, 8, INLINE, INLINE + 1, 4096, MAX_MESSAGE];
    for (turn, &len) in (0..).zip(lens.iter().cycle().take(60)) {
        let (lane, (header, body)) = (turn as usize % LANES, sample(turn as usize % LANES, turn, len));
        let (first, _) = &links[0];
        first.reserve(lane, len).unwrap().unwrap();
        for (other, _) in &links[1..] {
            // Twice, as who tried and could not go on does.
            for _ in 0..2 {
                let shares = other.reserve_with(first, lane).unwrap().unwrap();
                assert_eq!(shares, len > INLINE, "{len}");
                if !shares {
                    let room = other.reserve(lane, len).unwrap().unwrap();
                    room.copy_from(&Region::of(&body));
                }
            }
        }
        let room = first.reserve(lane, len).unwrap().unwrap();
        room.copy_from(&Region::of(&body));
        links.iter().for_each(|(out, _)| out.commit(lane, header));
        let mut order = [0, 1, 2];
        fastrand::Rng::with_seed(turn.into()).shuffle(&mut order);
        for k in order {
            let (out, into) = &links[k];
            assert_eq!(recv(into, lane), (header, body.clone()));
            // It knows at once, and uses the room again if it may.
            (0..LANES).for_each(|lane| drop(out.outbound().look(lane)));
            let (header, other) = sample(lane, turn + 1000, len);
            send(out, lane, header, &other);
            assert_eq!(recv(into, lane), (header, other));
        }
    }
}

/// What a communicator gives back others use, but for what is still to be read.
#[test]
fn memory_that_is_given_back_is_used_again() {
    let leases: Vec<Arc<Lease>> = (0..3).map(|_| Arc::default()).collect();
    let links: Vec<_> = leases.iter().map(|lease| pair_with(0, lease)).collect();
    let mut random = fastrand::Rng::with_seed(9);
    let mut unread: Vec<Vec<_>> = vec![Vec::new(); 3];
    for turn in 0..2000 {
        let (k, len) = (random.usize(..3), random.usize(INLINE + 1..=MAX_MESSAGE));
        let (lane, (header, body)) = (turn % LANES, sample(turn % LANES, turn as u32, len));
        let (out, into) = &links[k];
        if try_send(out, lane, header, &body) {
            unread[k].push((lane, (header, body)));
        }
        let read = random.usize(..=unread[k].len());
        for (lane, message) in unread[k].drain(..read) {
            assert_eq!(recv(into, lane), message, "turn {turn}");
        }
        if random.bool() {
            out.leave();
            leases[k].give_back();
        }
    }
}

/// Who was killed reads nothing any more, and says nothing of it.
#[test]
fn what_a_dead_process_has_not_read_is_free() {
    let child = crate::sys::fork::child(|| true);
    let dead = child.as_raw_pid() as u32;
    let parent = rustix::process::getppid().map_or(1, |pid| pid.as_raw_pid() as u32); // of which no other test thinks
    for (process, left) in [(parent, 1), (dead, 0)] {
        let lease = Arc::default();
        let (mut out, into) = pair_with(0, &lease);
        let half = out.outbound.take().unwrap();
        assert!(out.set_outbound(half.of_process(Some(process))));
        send(&out, 1, [0; 4], &[7; 500]);
        if process == dead {
            rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
        }
        drop((out, lease));
        assert_eq!(unread_by(process), left, "{process}");
        drop(into);
    }
}
