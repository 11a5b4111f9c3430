//! Connections by processes that hold no secret, or another one than they should.

use super::*;
use crate::{
    bootstrap::{control, seat::Life},
    net::{Patience, Role, Target},
    sys::socket,
    transport::links::Opener,
};
use std::{
    io::IoSlice,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

/// Connects over and over and writes things that are not the protocol.
fn babble(stop: &AtomicBool) {
    let address = control::start().unwrap().address();
    let mut noise = 0x9e37_79b9_7f4a_7c15u64;
    let mut held = Vec::new();
    while !stop.load(Relaxed) {
        let Ok(stream) = address.dial(None) else {
            thread::yield_now();
            continue;
        };
        let bytes: Vec<u8> = (0..200)
            .map(|_| {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                noise as u8
            })
            .collect();
        let len = noise as usize % bytes.len();
        let _ = socket::send(&stream, &[IoSlice::new(&bytes[..len])], &[]);
        held.push(stream);
        if held.len() > 10 {
            held.remove(0);
        }
    }
}

#[test]
fn garbage_disturbs_nobody() {
    let stop = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| babble(&stop));
        for _ in 0..5 {
            let members = communicator(3);
            members[0].open(2, Parcel::default()).unwrap();
            members[2].open(1, Parcel::default()).unwrap();
            assert!(members.iter().all(|m| !m.trouble()));
        }
        stop.store(true, Relaxed);
    });
}

#[test]
fn idle_strangers_do_not_lock_ranks_out() {
    let address = control::start().unwrap().address();
    let mut idle = Vec::new();
    while idle.len() < 200 {
        // The other test may have filled the listener's queue for a moment.
        match address.dial(None) {
            Ok(stream) => idle.push(stream),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    let members = communicator(3);
    members[0].open(1, Parcel::default()).unwrap();
    // The first of them have been sent away.
    until("the oldest to be dropped", || {
        socket::receive_bytes(&idle[0], &mut [0; 1]) == Ok(0)
    });
}

/// As a rank does that the job had before it was started anew, with the same secret: it was cut off, or stopped, and comes back to
/// where its peer was. It does not know what the rank that is there now has drawn.
#[test]
fn a_rank_of_the_job_s_earlier_life_is_turned_away() {
    let id = UniqueId::new().unwrap();
    let members: Vec<Membership> = join_all(vec![joining(&id, 2, 0), joining(&id, 2, 1)])
        .into_iter()
        .map(Result::unwrap)
        .collect();
    for role in [Role::Link, Role::Control, Role::Ask, Role::Stream] {
        let target = |secret| Target {
            addresses: vec![control::start().unwrap().address()],
            role,
            from: 1,
            to: 0,
            comm: id.comm,
            secret,
            protection: Protection::Off,
        };
        let patience = Patience::new(Instant::now() + LONG, &|| false);
        for secret in [
            id.secret.clone(),
            Life::draw().unwrap().secret(&id.secret).unwrap(),
        ] {
            let refused = patience.dial(&target(secret)).map(drop).unwrap_err().to_string();
            assert!(refused.contains("secret"), "{refused}");
        }
    }
    members[1].open(0, Parcel::default()).unwrap();
    assert!(members.iter().all(|member| !member.trouble()));
}
