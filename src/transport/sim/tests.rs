//! The world is as adverse as it says, and no more.

use super::*;
use crate::transport::{
    Link as _, Wires as _,
    conformance::{bytes_of, connect, recv, send},
};

/// Plays some traffic among three ranks and writes down all that was seen.
fn log(seed: u64) -> Vec<(usize, usize, Option<Header>)> {
    let world = World::new(3, 2, seed);
    let wires: Vec<Wires<'_>> = (0..3).map(|rank| world.wires(rank)).collect();
    let mut log = Vec::new();
    for turn in 0..2000 {
        let rank = world.next_rank();
        let (to, from) = ((rank + 1) % 3, (rank + 2) % 3);
        if let Some(link) = wires[rank].to(to).unwrap()
            && link.reserve(turn % LANES, 8).unwrap().is_some()
        {
            link.commit(turn % LANES, [turn as u32; 4]);
        }
        for lane in 0..LANES {
            let Some(link) = wires[rank].from(from).unwrap() else {
                break;
            };
            let seen = link.peek(lane).unwrap().map(|message| message.header);
            if seen.is_some() {
                link.release(lane);
            }
            log.push((rank, lane, seen));
        }
    }
    log
}

#[test]
fn the_same_seed_is_the_same_run() {
    assert_eq!(log(7), log(7));
    assert_ne!(log(7), log(8));
}

#[test]
fn lanes_overtake_each_other() {
    let overtaken = (0..100).filter(|&seed| {
        let world = World::new(2, 1, seed);
        let (a, b) = (world.wires(0), world.wires(1));
        let (out, into) = connect(&a, &b);
        send(out, 0, [0; 4], &[1]);
        send(out, 1, [0; 4], &[1]);
        loop {
            let [first, second] = [0, 1].map(|lane| into.peek(lane).unwrap().is_some());
            if first || second {
                return !first;
            }
        }
    });
    assert!((1..100).contains(&overtaken.count()));
}

#[test]
fn an_offer_is_read_where_it_lies() {
    let world = World::new(2, 0, 3);
    let (a, b) = (world.wires(0), world.wires(1));
    let (out, into) = connect(&a, &b);
    let mut data = [1u8, 2, 3];
    let offered = Region::of_mut(&mut data);
    let ticket = out.offer(0, [9; 4], offered).unwrap().unwrap();
    offered.copy_from(&Region::of(&[4u8, 5, 6]));
    assert!((0..1000).all(|_| !out.taken(0, ticket)));
    assert_eq!(recv(into, 0), ([9; 4], vec![4, 5, 6]));
    assert!((0..=LONGEST_DELAY).any(|_| out.taken(0, ticket)));
    assert!(world.is_quiet());
}

#[test]
fn a_released_body_is_spoilt() {
    let world = World::new(2, 1, 3);
    let (a, b) = (world.wires(0), world.wires(1));
    let (out, into) = connect(&a, &b);
    send(out, 0, [0; 4], &[1, 2]);
    let body = loop {
        if let Some(message) = into.peek(0).unwrap() {
            break message.body.here().unwrap();
        }
    };
    assert_eq!(bytes_of(&body), [1, 2]);
    into.release(0);
    assert_eq!(bytes_of(&body), [0xA5, 0xA5]);
}

#[test]
fn from_the_dead_comes_only_what_was_seen() {
    let world = World::new(3, 2, 5);
    let (a, b) = (world.wires(0), world.wires(1));
    let (out, into) = connect(&a, &b);
    send(out, 0, [1; 4], &[1]);
    while into.peek(0).unwrap().is_none() {}
    send(out, 1, [2; 4], &[2]);
    assert!(!world.is_quiet());
    world.kill(0);
    assert!(!world.lives(0) && world.is_quiet());
    assert_eq!(recv(into, 0), ([1; 4], vec![1]));
    assert!((0..1000).all(|_| into.peek(1).unwrap().is_none()));
    assert!((0..1000).all(|_| b.from(0).unwrap().is_some()));
    assert!((0..1000).all(|_| world.next_rank() != 0));
}
