//! Connections by processes that hold no secret.

use super::*;
use crate::{bootstrap::control, sys::socket, transport::links::Opener};
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
