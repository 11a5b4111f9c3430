//! Offered messages that their receivers read where they lie: as threads of the same process, or in memory handed over.

use super::*;
use crate::{
    mem::{SharedMemory, shared},
    transport::Body,
};
use std::thread;

#[test]
fn threads_of_one_process_read_each_others_memory_while_it_is_theirs() {
    let (out, into) = pair_by(0, DIRECT, &Arc::default(), |_| {});
    let mut data = [1u8, 2, 3];
    let offered = Region::of_mut(&mut data);
    assert_eq!(out.reach(&offered), Reach::Reading);
    let ticket = out.offer(0, [7; 4], offered).unwrap().unwrap();
    assert!(matches!(into.peek(0).unwrap().unwrap().body, Body::Lent(3)));
    let pinned = into.pin(0, 3).unwrap().unwrap();
    assert_eq!(bytes_of(&pinned.body()), [1, 2, 3]);
    assert!(pinned.end() && !out.taken(0, ticket));
    into.release(0);
    assert!(out.taken(0, ticket));
    out.offer(0, [7; 4], offered).unwrap().unwrap();
    out.withdraw();
    assert!(into.pin(0, 3).unwrap().is_none());
    assert_eq!(take(&into, 3), None);
}

/// Of two threads one gives up its memory, again and again, while the other reads it: what was read is what was offered.
#[test]
fn who_withdraws_waits_for_those_who_read() {
    for seed in 0..200 {
        let (out, into) = pair_by(0, DIRECT, &Arc::default(), |_| {});
        let mut data = vec![7u8; 20_000];
        let offered = Region::of_mut(&mut data);
        out.offer(0, [7; 4], offered).unwrap().unwrap();
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let mut copy = vec![0u8; 20_000];
                let taken = (0..).find_map(|_| {
                    let taken = into.take(0, &Region::of_mut(&mut copy)).unwrap();
                    assert!(!taken || copy.iter().all(|&byte| byte == 7), "seed {seed}");
                    (!taken).then_some(())
                });
                taken.is_some()
            });
            (0..fastrand::Rng::with_seed(seed).u32(..2000)).for_each(|_| std::hint::spin_loop());
            out.withdraw();
            offered.copy_from(&Region::of(&[9u8; 20_000]));
            assert!(reader.join().unwrap());
        });
    }
}

/// As between two processes: a rank knows no thread of its own process by this token.
fn strangers() -> (super::Link, super::Link) {
    pair_by(0, DIRECT, &Arc::default(), |parcel| {
        parcel.bytes[hello(SHALLOW).len()] ^= 1
    })
}

/// Hands over the memory in which `data` lies; whether there was something to hand over.
fn hand_over(out: &super::Link, into: &mut super::Link, data: &[u8]) -> bool {
    let memory = shared::find(&Region::of(data)).unwrap();
    let parcel = out.hand_over(&memory).unwrap();
    let mapping = parcel.map(|parcel| Mapping::of(0, &parcel).unwrap().unwrap());
    mapping.is_some_and(|mapping| into.admit(mapping))
}

#[test]
fn memory_that_was_handed_over_is_read_where_it_lies() {
    let (out, mut into) = strangers();
    let mut memory = SharedMemory::<u8>::new(20_000).unwrap();
    memory[9_990..].fill(5);
    let is_read = |body: &[u8]| out.reach(&Region::of(body)) == Reach::Reading;
    assert!(!is_read(&memory) && !into.may_lend());
    let before = into.mapped();
    assert!(hand_over(&out, &mut into, &memory));
    assert!(is_read(&memory) && into.may_lend() && into.mapped() >= before + 20_000);
    assert!(!hand_over(&out, &mut into, &memory[7..9]), "once is enough");
    assert!(!is_read(&[1, 2, 3]));
    for part in [9_990..9_993, 0..1, 19_000..20_000, 9_000..15_000, 5..5] {
        let wanted = ([7; 4], memory[part.clone()].to_vec());
        out.offer(3, [7; 4], Region::of(&memory[part])).unwrap().unwrap();
        assert!(matches!(into.peek(3).unwrap().unwrap().body, Body::Lent(_)));
        assert_eq!(recv(&into, 3), wanted);
    }
    // What is written after a withdrawal is not taken for the message, be it read before or after.
    out.offer(3, [7; 4], Region::of(&memory[..3])).unwrap().unwrap();
    let pinned = into.pin(3, 3).unwrap().unwrap();
    out.withdraw();
    assert!(!pinned.end());
    assert!(into.pin(3, 3).unwrap().is_none());
}

#[test]
fn places_are_used_again_for_what_comes_after_what_was_freed() {
    let (out, mut into) = strangers();
    let mut random = fastrand::Rng::with_seed(9);
    let mut kept: Vec<SharedMemory<u8>> = Vec::new();
    for turn in 1..400 {
        let mut memory = SharedMemory::new(random.usize(1..10_000)).unwrap();
        memory.fill(turn as u8);
        let had_room = kept.len() < MAPPINGS;
        assert_eq!(hand_over(&out, &mut into, &memory), had_room, "turn {turn}");
        kept.push(memory);
        if kept.len() > MAPPINGS {
            kept.swap_remove(random.usize(..kept.len()));
        }
        let read = kept
            .iter()
            .filter(|one| out.reach(&Region::of(one)) == Reach::Reading);
        for memory in read {
            out.offer(0, [1; 4], Region::of(memory)).unwrap().unwrap();
            assert_eq!(recv(&into, 0).1, memory[..]);
        }
        // Of what was not handed over at once some may be in time.
        if turn % 90 == 0 {
            kept.truncate(random.usize(..kept.len()));
        }
        for memory in &kept {
            hand_over(&out, &mut into, memory);
        }
    }
}

#[test]
fn only_some_memory_is_on_its_way_at_a_time() {
    let (out, mut into) = strangers();
    let all: Vec<_> = (0..10).map(|_| SharedMemory::<u8>::new(1).unwrap()).collect();
    let parcels = || {
        let memory = all.iter().map(|one| shared::find(&Region::of(one)).unwrap());
        memory
            .filter_map(|memory| out.hand_over(&memory).unwrap())
            .collect()
    };
    let mut seen = 0;
    loop {
        let some: Vec<Parcel> = parcels();
        assert!(some.len() <= 4 && parcels().is_empty());
        seen += some.len();
        if some.is_empty() {
            break;
        }
        for parcel in some {
            assert!(into.admit(Mapping::of(0, &parcel).unwrap().unwrap()));
        }
    }
    assert_eq!(seen, all.len());
}

#[test]
fn memory_that_is_not_what_it_says_is_refused() {
    let memory = SharedMemory::<u8>::new(5000).unwrap();
    let refused = |change: &dyn Fn(&mut Parcel)| {
        let (out, _into) = strangers();
        let memory = shared::find(&Region::of(&memory)).unwrap();
        let mut parcel = out.hand_over(&memory).unwrap().unwrap();
        change(&mut parcel);
        blamed(Mapping::of(4, &parcel))
    };
    let at = Mapping::HELLO.len();
    let strange: [&dyn Fn(&mut Parcel); 7] = [
        &|parcel| parcel.bytes.truncate(at + 9),
        &|parcel| parcel.bytes.push(0),
        &|parcel| parcel.fds.clear(),
        &|parcel| parcel.bytes[at] = MAPPINGS as u8,
        &|parcel| parcel.bytes[at + 4..at + 8].fill(0),
        &|parcel| parcel.bytes[at + 8..].fill(0),
        &|parcel| parcel.bytes[at + 8..].fill(0xff),
    ];
    for change in strange {
        assert_eq!(
            refused(change),
            (4, "it handed over memory in a way of its own".to_owned())
        );
    }
    let (rank, what) = refused(&|parcel| parcel.bytes[at + 8] ^= 1);
    assert!(rank == 4 && what.contains("bytes large instead of"), "{what}");
    let bell = Bell::new().unwrap();
    let (_, what) = refused(&|parcel| parcel.fds[0] = bell.descriptor().unwrap());
    assert!(what.contains("bytes large instead of"), "{what}");
}

#[test]
fn a_message_outside_of_what_was_handed_over_is_refused() {
    let memory = SharedMemory::<u8>::new(5000).unwrap();
    let size = 5000usize.next_multiple_of(rustix::param::page_size()) as u64;
    let number = shared::find(&Region::of(&memory)).unwrap().number();
    let lies: [(u64, usize, u32); 5] = [
        (size - 99, 0, number),
        (u64::MAX, 0, number),
        (0, 1, number),
        (0, usize::MAX >> 32, number),
        (0, 0, number.wrapping_add(1)),
    ];
    for (at, place, number) in lies {
        let (out, mut into) = strangers();
        assert!(hand_over(&out, &mut into, &memory));
        out.offer(0, [0; 4], Region::of(&memory[..100])).unwrap().unwrap();
        let entry = out.outbound().segment.entry(0, 0, SHALLOW);
        entry.set_address(at);
        entry.set_mapping(place, number);
        let (rank, what) = blamed(into.pin(0, 100).map(|_| ()));
        assert!(
            rank == 0 && what.contains("which it has not handed over"),
            "{what}"
        );
    }
}
