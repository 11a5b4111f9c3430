//! Which sends are zero-copy-safe.

use super::{built, channels, exchange, input, output, plain, recv, sum, to};
use crate::plan::algo::ALGORITHMS;
use crate::plan::definition;
use crate::plan::schedule::{Affine, Buffer, How, Item, Schedule, Slice, Source, Step};
use crate::plan::verify::{Mode, SendSite, run, verify_all};
use crate::types::Collective;

fn site(rank: usize, item: &[u32]) -> SendSite {
    SendSite {
        rank,
        channel: 0,
        item: item.into(),
        send: 0,
    }
}

#[test]
fn an_exchange_in_place_must_be_staged() {
    let proof = verify_all(Collective::AllReduce, &exchange()).unwrap();
    assert_eq!((proof.steps, proof.messages), (4, 2));
    for rank in 0..2 {
        // Both would wait for the other to have taken the old value before they store the new one.
        assert!(!proof.zero_copy(true, &site(rank, &[0])));
        assert!(proof.zero_copy(false, &site(rank, &[0])));
    }
}

#[test]
fn a_site_that_blocks_in_one_turn_is_staged_in_all() {
    // The exchange twice over, block by block, in a repeat.
    let of = |me: usize| {
        let block = Affine::stepping(0, 1);
        let slice = |buffer| Slice::grain(buffer, block);
        let own = Source::Slice(slice(Buffer::Input));
        let send = Step::copy(own).send(to(1 - me));
        let add = sum([own, recv(1 - me)]).store(slice(Buffer::Output));
        let items = vec![Item::Step(send), Item::Step(add)];
        Schedule::plain(2, 2, vec![Item::Repeat { count: 2, items }])
    };
    let proof = verify_all(Collective::AllReduce, &[of(0), of(1)]).unwrap();
    for rank in 0..2 {
        assert!(!proof.zero_copy(true, &site(rank, &[0, 0])));
        assert!(proof.zero_copy(false, &site(rank, &[0, 0])));
    }
}

#[test]
fn a_late_receiver_is_waited_for_not_staged() {
    // Rank 0 overwrites what it sent, but rank 1 takes it without waiting for anything of rank 0's.
    let schedules = plain(
        1,
        [
            vec![
                Step::copy(input(0)).send(to(1)),
                Step::copy(recv(1)).store(output(0)),
            ],
            vec![sum([recv(0), input(0)]).store(output(0)).send(to(0))],
        ],
    );
    let proof = verify_all(Collective::AllReduce, &schedules).unwrap();
    assert_eq!(proof.staged(true).count() + proof.staged(false).count(), 0);
}

#[test]
fn a_send_of_another_channel_is_guarded_too() {
    // Channel 1 stores over what channel 0 lends; rank 1 takes it only after it got channel 1's message.
    let after = |step: Step| Step {
        after: Some((0, 0)),
        ..step
    };
    let rank_0 = vec![
        vec![Step::copy(input(0)).send(to(1))],
        vec![after(sum([input(0), recv(1)]).store(output(0)).send(to(1)))],
    ];
    let rank_1 = vec![
        vec![after_of(
            1,
            1,
            Step::of(How::Reduce, [recv(0)]).store(super::scratch(0)),
        )],
        vec![
            Step::copy(input(0)).send(to(0)),
            Step::copy(recv(0)).store(output(0)),
        ],
    ];
    let mut schedules = channels(1, [rank_0, rank_1]);
    schedules[1].scratch = 1;
    let proof = verify_all(Collective::AllReduce, &schedules).unwrap();
    assert!(!proof.zero_copy(true, &site(0, &[0])));
    assert!(proof.zero_copy(false, &site(0, &[0])));
    assert!(proof.zero_copy(
        true,
        &SendSite {
            channel: 1,
            ..site(0, &[0])
        }
    ));
    run(Collective::AllReduce, &schedules, true, Mode::POSTED).unwrap();
}

fn after_of(channel: u32, item: u32, step: Step) -> Step {
    Step {
        after: Some((channel, item)),
        ..step
    }
}

#[test]
fn algorithms_lend_all_that_has_a_place() {
    for algorithm in ALGORITHMS {
        for ranks in 2..=9 {
            let mut collectives = definition::every([1]).into_iter();
            let collective = collectives
                .find(|&collective| (algorithm.fits)(collective))
                .unwrap();
            let schedules = built(algorithm, collective, ranks);
            let proof = verify_all(collective, &schedules).unwrap();
            for in_place in [false, true] {
                let staged: Vec<_> = proof.staged(in_place).cloned().collect();
                let expected: Vec<_> = match algorithm.name {
                    // It passes partial sums on without storing them.
                    "ring" => (0..ranks).map(|rank| site(rank, &[1, 0])).collect(),
                    // Both partners overwrite what they sent, but for the input out of place. Among other numbers of
                    // ranks some partner does not.
                    "doubling" if ranks.is_power_of_two() => {
                        let rounds = u32::from(!in_place)..ranks.ilog2();
                        let of_rank = |rank| rounds.clone().map(move |round| site(rank, &[round]));
                        (0..ranks).flat_map(of_rank).collect()
                    }
                    "doubling" => continue,
                    // Everyone overwrites what everyone is to fetch.
                    "oneshot" if in_place => {
                        let of_rank = |rank| {
                            let send = move |send| SendSite {
                                send,
                                ..site(rank, &[0])
                            };
                            (0..ranks as u32 - 1).map(send)
                        };
                        (0..ranks).flat_map(of_rank).collect()
                    }
                    // As a ring, where there are children.
                    "doubletree" => placeless(&schedules),
                    // What its stages are made of does as it does alone.
                    "hierarchical" | "hierarchical-ring" => continue,
                    _ => vec![],
                };
                assert_eq!(
                    staged, expected,
                    "{}, {ranks} ranks, in place {in_place}",
                    algorithm.name
                );
            }
        }
    }
}

/// The first items of channels that send a sum which they do not store.
fn placeless(schedules: &[Schedule]) -> Vec<SendSite> {
    let mut sites = Vec::new();
    for (rank, schedule) in schedules.iter().enumerate() {
        for (channel, items) in (0..).zip(&schedule.channels) {
            if let Item::Step(step) = &items[0]
                && step.how != How::Copy
                && step.stores.is_empty()
            {
                sites.push(SendSite {
                    channel,
                    ..site(rank, &[0])
                });
            }
        }
    }
    sites
}
