//! A rank that says what no rank says.

use super::{
    Envelope, Posted, Transfers, Wanted,
    message::Word,
    pair::{AT_ONCE, CONTROL, DATA, KEPT, SHORT},
};
use crate::{
    exec::{Completion, Fault},
    mem::{Hold, Region},
    transport::{Link as _, Wires as _, sim},
    types::DType,
};
use std::sync::Arc;

const SLOTS: usize = KEPT as usize + 1;

/// Rank 0 sends rank 1 `words`, each with a body, over a lane that holds them all. What rank 1, which has `transfers`, makes of them.
fn hear(transfers: &mut Transfers, words: &[(Word, Vec<u8>)]) -> Result<(), Fault> {
    let world = sim::World::new(2, SLOTS, 7).with_max_message(4 * SHORT);
    let (from, to) = (world.wires(0), world.wires(1));
    let link = loop {
        if let Some(link) = from.to(1).unwrap() {
            break link;
        }
    };
    for (word, body) in words {
        let room = loop {
            if let Some(room) = link.reserve(CONTROL, body.len()).unwrap() {
                break room;
            }
        };
        room.copy_from(&Region::of(body));
        link.commit(CONTROL, word.header());
    }
    // More looks than any of them takes to show up.
    (0..words.len() * 1000).try_for_each(|_| transfers.hear_all(&to).map(|_| ()))
}

fn envelope(bytes: usize) -> Envelope {
    Envelope {
        tag: 0,
        dtype: DType::Uint8,
        count: bytes as u64,
    }
}

fn here(bytes: usize) -> (Word, Vec<u8>) {
    (Word::Here(envelope(bytes)), vec![7; bytes])
}

#[test]
fn no_more_short_messages_are_kept_than_may_be() {
    let all = |count: u32| vec![here(4); count as usize];
    hear(&mut Transfers::new(1, 2), &all(KEPT)).unwrap();
    let more = hear(&mut Transfers::new(1, 2), &all(KEPT + 1));
    assert!(matches!(more, Err(Fault::Nonsense { peer: 0 })), "{more:?}");
}

#[test]
fn a_long_message_does_not_come_as_short_ones_do() {
    hear(&mut Transfers::new(1, 2), &[here(SHORT)]).unwrap();
    let long = hear(&mut Transfers::new(1, 2), &[here(SHORT + 1)]);
    assert!(matches!(long, Err(Fault::Nonsense { peer: 0 })), "{long:?}");

    // Where a long one is wanted the link was told where it lands.
    for (bytes, is_right) in [(SHORT, true), (SHORT + 1, false)] {
        let memory: &'static mut [u8] = Box::leak(vec![0; bytes].into());
        let mut transfers = Transfers::new(1, 2);
        let wanted = Wanted::exactly(0, DType::Uint8);
        let completion = Arc::new(Completion::default());
        let posted = Posted::new(Hold::raw(Region::of_mut(memory)), wanted, completion);
        transfers.receive(posted).unwrap();
        let announced = (Word::There(envelope(bytes)), 3u32.to_ne_bytes().to_vec());
        let late = (Word::Late { id: 3 }, vec![7; bytes]);
        let heard = hear(&mut transfers, &[announced, late]);
        assert_eq!(heard.is_ok(), is_right, "{bytes} bytes: {heard:?}");
    }
}

/// Sends what is given over a lane of the link to rank 1, and looks there until all of it has arrived.
fn put(world: &sim::World, lane: usize, words: impl Iterator<Item = (Word, Vec<u8>)>) {
    let (from, to) = (world.wires(0), world.wires(1));
    let link = loop {
        if let Some(link) = from.to(1).unwrap() {
            break link;
        }
    };
    for (word, body) in words {
        let room = link.reserve(lane, body.len()).unwrap().unwrap();
        room.copy_from(&Region::of(&body));
        link.commit(lane, word.header());
    }
    let link = loop {
        if let Some(link) = to.from(0).unwrap() {
            break link;
        }
    };
    (0..SLOTS * 1000).for_each(|_| _ = link.peek(lane).unwrap());
}

/// So that no sender holds up what else there is to do.
#[test]
fn a_look_takes_in_no_more_than_so_much() {
    const ALL: usize = 3 * AT_ONCE;
    for is_short in [true, false] {
        let world = sim::World::new(2, SLOTS, 7);
        let (mut transfers, to) = (Transfers::new(1, 2), world.wires(1));
        let post = || {
            let memory: &'static mut [u8] = Box::leak(vec![0; 4].into());
            let completion = Arc::new(Completion::default());
            let wanted = Wanted::exactly(0, DType::Uint8);
            (
                Posted::new(Hold::raw(Region::of_mut(memory)), wanted, Arc::clone(&completion)),
                completion,
            )
        };
        let (posted, completions): (Vec<_>, Vec<_>) = (0..ALL).map(|_| post()).unzip();
        posted
            .into_iter()
            .for_each(|posted| transfers.receive(posted).unwrap());
        match is_short {
            true => put(&world, CONTROL, (0..ALL).map(|_| here(4))),
            false => {
                let word = |id: usize| (Word::There(envelope(4)), (id as u32).to_ne_bytes().to_vec());
                put(&world, CONTROL, (0..ALL).map(word));
                (0..1000).for_each(|_| _ = transfers.poll(&to).unwrap());
                put(
                    &world,
                    DATA,
                    (0..ALL).map(|id| (Word::Piece { id: id as u32 }, vec![7; 4])),
                );
            }
        }
        let over = || completions.iter().filter(|one| one.is_over()).count();
        for look in 1..=ALL / AT_ONCE {
            assert!(transfers.poll(&to).unwrap());
            assert_eq!(over(), look * AT_ONCE, "short: {is_short}");
        }
        assert!(transfers.is_idle());
    }
}
