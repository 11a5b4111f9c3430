//! Bad schedules, one for each thing that can be wrong, and what the verifier says of them.

use super::{channels, exchange, grain, input, output, plain, recv, scratch, sum, to};
use crate::plan::schedule::{Affine, Buffer, How, Item, Schedule, Slice, Source, Step};
use crate::plan::verify::{Mode, run, verify, verify_all};
use crate::types::Collective;

const SUM: Collective = Collective::AllReduce;
const SPREAD: Collective = Collective::Broadcast { root: 0 };

fn rejected(collective: Collective, schedules: &[Schedule], text: &str) {
    let flaw = verify_all(collective, schedules).expect_err(text);
    assert_eq!(flaw.to_string(), text);
}

/// The exchange with the second rank's steps replaced.
fn against(second: Vec<Step>) -> Vec<Schedule> {
    let [_, rank_1] = plain(1, [vec![], second]).try_into().unwrap();
    vec![exchange().remove(0), rank_1]
}

/// The second rank's steps in a right exchange.
fn second() -> [Step; 2] {
    [
        Step::copy(input(0)).send(to(0)),
        sum([recv(0), input(0)]).store(output(0)),
    ]
}

#[test]
fn the_exchange_is_right() {
    verify_all(SUM, &against(second().into())).unwrap();
    assert_eq!(verify_all(SUM, &[]).unwrap().steps, 0);
}

/// Turned copies of each other whose results are rank 0's alone.
#[test]
fn all_ranks_store_the_block_of_one() {
    let gets_all = |how: fn(usize) -> Vec<Step>| {
        let items = move |me| how(me).into_iter().map(Item::Step).collect();
        move |me| Schedule::plain(3, 3, items(me))
    };
    let sums = gets_all(|me| {
        let peers = [(me + 1) % 3, (me + 2) % 3];
        vec![
            Step::copy(input(0)).send(to(peers[0])).send(to(peers[1])),
            sum([input(0), recv(peers[0]), recv(peers[1])]).store(output(0)),
        ]
    });
    for collective in [Collective::ReduceScatter, Collective::ReduceScatterV] {
        let flaw = verify(collective, 3, sums).expect_err("nobody sums block 1");
        assert!(flaw.to_string().contains("this rank's has none of it"), "{flaw}");
    }
    let spreads = gets_all(|me| {
        let peers = [(me + 1) % 3, (me + 2) % 3];
        let mut steps = vec![
            Step::copy(input(0))
                .send(to(peers[0]))
                .send(to(peers[1]))
                .store(output(me)),
        ];
        steps.extend(peers.map(|peer| Step::copy(recv(peer)).store(output(peer))));
        steps
    });
    for collective in [Collective::AlltoAll, Collective::AlltoAllV] {
        verify(collective, 3, spreads).expect_err("all ranks get block 0");
    }
}

#[test]
fn schedules_that_disagree() {
    let mut schedules = exchange();
    schedules[1].blocks = 2;
    rejected(
        SUM,
        &schedules,
        "rank 1: its schedule is for 2 blocks where 1 are agreed",
    );
    schedules[1] = exchange().remove(0);
    schedules[1].ranks = 3;
    rejected(
        SUM,
        &schedules,
        "rank 1: its schedule is for 3 ranks where 2 are agreed",
    );
    schedules[0].grains = 0;
    rejected(
        SUM,
        &schedules,
        "rank 0: its schedule is for 0 grains in a block where 1 are agreed",
    );
}

#[test]
fn repeats_that_nest_too_deep() {
    let mut schedules = exchange();
    for _ in 0..3 {
        let items = std::mem::take(&mut schedules[0].channels[0]);
        schedules[0].channels[0] = vec![Item::Repeat { count: 1, items }];
    }
    rejected(
        SUM,
        &schedules,
        "rank 0, channel 0, item 0: repeats nest deeper than 2",
    );
}

#[test]
fn a_step_without_a_slice() {
    let text = "rank 1, channel 0, item 0: the step has no slice, so nobody knows how long its messages are";
    rejected(SUM, &against(vec![Step::copy(recv(0)).send(to(0))]), text);
}

#[test]
fn slices_of_different_lengths() {
    let two = Slice { reps: 2, ..output(0) };
    let text = "rank 1, channel 0, item 0: a slice has 2 grains where the step's first has 1";
    rejected(SUM, &against(vec![Step::copy(input(0)).store(two)]), text);
}

#[test]
fn a_wrong_number_of_sources() {
    let two = Step::of(How::Copy, [input(0), recv(0)]).store(output(0));
    rejected(
        SUM,
        &against(vec![two]),
        "rank 1, channel 0, item 0: Copy with 2 sources",
    );
    let none = Step::of(How::Reduce, []).store(output(0));
    rejected(
        SUM,
        &against(vec![none]),
        "rank 1, channel 0, item 0: Reduce with 0 sources",
    );
}

#[test]
fn scratch_that_was_not_asked_for() {
    let mut schedules = against(vec![Step::copy(recv(0)).store(scratch(2))]);
    let text = "rank 1, channel 0, item 0: scratch position 2 lies outside of the 0 grains declared";
    rejected(SUM, &schedules, text);
    schedules[1].scratch = 2;
    rejected(SUM, &schedules, &text.replace("the 0", "the 2"));
}

#[test]
fn a_store_into_the_input() {
    let text = "rank 1, channel 0, item 0: stores into the input, which belongs to the caller";
    rejected(
        SUM,
        &against(vec![Step::copy(recv(0)).store(grain(Buffer::Input, 0))]),
        text,
    );
}

#[test]
fn an_input_that_is_not_there() {
    let schedules = plain(
        1,
        [
            vec![Step::copy(input(0)).store(output(0))],
            vec![Step::copy(input(0)).store(output(0))],
        ],
    );
    let text = "rank 1, channel 0, item 0: reads of the input what this rank does not have";
    rejected(SPREAD, &schedules, text);
}

#[test]
fn an_after_that_names_nothing() {
    let [send, add] = second();
    let text = "rank 1, channel 0, item 1: waits for item 0 of channel 0, which is its own channel or does not exist";
    rejected(
        SUM,
        &against(vec![
            send.clone(),
            Step {
                after: Some((0, 0)),
                ..add.clone()
            },
        ]),
        text,
    );
    rejected(
        SUM,
        &against(vec![
            send,
            Step {
                after: Some((1, 0)),
                ..add
            },
        ]),
        &text.replace("channel 0, which", "channel 1, which"),
    );
}

#[test]
fn a_rank_that_is_its_own_peer() {
    let [send, add] = second();
    let text = "rank 1, channel 0, item 0: sends to itself";
    rejected(SUM, &against(vec![Step::copy(input(0)).send(to(1)), add]), text);
    let text = "rank 1, channel 0, item 1: receives from itself";
    rejected(
        SUM,
        &against(vec![send, sum([recv(1), input(0)]).store(output(0))]),
        text,
    );
}

#[test]
fn a_peer_twice_in_a_step() {
    let [send, add] = second();
    let text = "rank 1, channel 0, item 0: sends to rank 0 twice in one step: a lane shows and takes one message at a time";
    rejected(SUM, &against(vec![send.clone().send(to(0)), add]), text);
    let text = "rank 1, channel 0, item 1: receives from rank 0 twice in one step: a lane shows and takes one message at a time";
    rejected(
        SUM,
        &against(vec![send, sum([recv(0), recv(0)]).store(output(0))]),
        text,
    );
}

#[test]
fn a_step_that_overwrites_what_it_reads() {
    let run = |at| Slice {
        run: 2,
        ..scratch(at)
    };
    let fill = |at| Step::copy(input(0)).store(scratch(at));
    let mut schedules = against(vec![
        fill(0),
        fill(1),
        Step::copy(Source::Slice(run(0))).store(run(1)),
    ]);
    schedules[1].scratch = 3;
    let text = "rank 1, channel 0, item 2: its slices overlap at different places, so that it would overwrite what it has yet to read or keep";
    rejected(SUM, &schedules, text);
}

/// A chain of three: rank 1 passes on in a channel of its own what it stored in another.
fn two_channels(after: Option<(u32, u32)>) -> Vec<Schedule> {
    let pass = Step {
        after,
        ..Step::copy(Source::Slice(output(0))).send(to(2))
    };
    channels(
        1,
        [
            vec![vec![Step::copy(input(0)).store(output(0)).send(to(1))]],
            vec![vec![Step::copy(recv(0)).store(output(0))], vec![pass]],
            vec![vec![], vec![Step::copy(recv(1)).store(output(0))]],
        ],
    )
}

#[test]
fn channels_need_their_after() {
    verify_all(SPREAD, &two_channels(Some((0, 0)))).unwrap();
    let text =
        "rank 1, channel 1, item 0: conflicts with channel 0, item 0 in Output: nothing orders the two";
    rejected(SPREAD, &two_channels(None), text);
}

#[test]
fn an_order_through_other_ranks_does_not_count() {
    // Rank 0's second channel sends on what rank 1 sent back after it got the first channel's message.
    let after = |after, step: Step| Step {
        after: Some(after),
        ..step
    };
    let mut schedules = channels(
        1,
        [
            vec![
                vec![Step::copy(input(0)).store(output(0)).send(to(1))],
                vec![
                    Step::copy(recv(1)).store(scratch(0)),
                    Step::copy(Source::Slice(output(0))).store(scratch(0)),
                ],
            ],
            vec![
                vec![Step::copy(recv(0)).store(output(0))],
                vec![after((0, 0), Step::copy(Source::Slice(output(0))).send(to(0)))],
            ],
        ],
    );
    schedules[0].scratch = 1;
    let text =
        "rank 0, channel 1, item 1: conflicts with channel 0, item 0 in Output: nothing orders the two";
    rejected(SPREAD, &schedules, text);
    let Item::Step(last) = &mut schedules[0].channels[1][1] else {
        unreachable!()
    };
    last.after = Some((0, 0));
    verify_all(SPREAD, &schedules).unwrap();
}

#[test]
fn channels_that_only_read_need_no_after_except_in_place() {
    let mut schedules = channels(
        1,
        [
            vec![
                vec![
                    Step::copy(input(0)).store(scratch(0)),
                    Step::copy(input(0)).send(to(1)),
                ],
                vec![sum([input(0), recv(1)]).store(output(0))],
            ],
            vec![
                vec![Step::copy(recv(0)).store(scratch(0))],
                vec![
                    Step::copy(input(0)).send(to(0)),
                    Step {
                        after: Some((0, 0)),
                        ..sum([Source::Slice(scratch(0)), input(0)]).store(output(0))
                    },
                ],
            ],
        ],
    );
    schedules.iter_mut().for_each(|schedule| schedule.scratch = 1);
    run(SUM, &schedules, false, Mode::POSTED).unwrap();
    let text =
        "rank 0, channel 1, item 0: conflicts with channel 0, item 1 in Output: nothing orders the two";
    rejected(SUM, &schedules, text);
}

#[test]
fn a_grain_that_nothing_wrote() {
    let text = "rank 1, channel 0, item 0, block 0: reads a grain of Output that nothing has written";
    rejected(
        SUM,
        &against(vec![Step::copy(Source::Slice(output(0))).send(to(0))]),
        text,
    );
    let mut schedules = against(vec![Step::copy(Source::Slice(scratch(1))).send(to(0))]);
    schedules[1].scratch = 2;
    rejected(SUM, &schedules, &text.replace("Output", "Scratch"));
}

#[test]
fn an_input_that_was_overwritten() {
    // Right out of place; in place the second step reads what the first stored.
    let second = vec![
        Step::copy(input(0)).send(to(0)),
        Step::copy(recv(0)).store(output(0)),
        sum([Source::Slice(output(0)), input(0)]).store(output(0)),
    ];
    run(SUM, &against(second.clone()), false, Mode::buffered(1)).unwrap();
    let text = "rank 1, channel 0, item 2, block 0: reads a grain of the input where in place a step has stored a result";
    rejected(SUM, &against(second), text);
    // The same value, unless it is multiplied when it is read.
    let [send, add] = self::second();
    let keep = Step::copy(input(0)).store(output(0));
    rejected(SUM, &against(vec![send, keep, add]), text);
}

#[test]
fn a_reduction_of_different_blocks() {
    let of = |me: usize, own| {
        let send = |at| Step::copy(input(at)).send(to(1 - me));
        let add = |at, own| sum([recv(1 - me), input(own)]).store(output(at));
        vec![send(0), add(0, own), send(1), add(1, 1)]
    };
    let text = "rank 1, channel 0, item 1, block 0: reduces a value of block 1 with one of this block";
    rejected(SUM, &plain(2, [of(0, 0), of(1, 1)]), text);
}

#[test]
fn a_reduction_after_the_last() {
    let first = sum([input(0)]).send(to(0));
    let text = "rank 0, channel 0, item 1, block 0: reduces a value that is finished already";
    rejected(SUM, &against(vec![first, second()[1].clone()]), text);
}

#[test]
fn a_store_at_another_block() {
    let of = |at| vec![Step::copy(input(0)).store(output(at))];
    let text = "rank 0, channel 0, item 0, block 0: stores it at position 1 of Output, which the rank does not know to be as long";
    rejected(SUM, &plain(2, [of(1)]), text);
    let mut schedules = plain(
        2,
        [vec![
            Step::copy(input(0)).store(scratch(2)),
            Step::copy(input(0)).store(scratch(3)),
        ]],
    );
    schedules[0].scratch = 4;
    let text = "rank 0, channel 0, item 1, block 0: stores it at position 3 of Scratch, which the rank does not know to be as long";
    rejected(SUM, &schedules, text);
}

#[test]
fn an_output_that_lacks_something() {
    let [send, _] = second();
    let schedules = against(vec![send, Step::copy(recv(0)).store(output(0))]);
    let text = "rank 1, channel 0, item 1, block 0: the output holds the unfinished block 0 of ranks 0 where the finished block 0 of ranks 0..=1 is wanted";
    rejected(SUM, &schedules, text);
    let text = "rank 0, block 0: the output holds nothing where the unfinished block 0 of ranks 0 is wanted";
    run(SPREAD, &plain(1, [vec![], vec![]]), false, Mode::buffered(1))
        .map_err(|flaw| assert_eq!(flaw.to_string(), text))
        .unwrap_err();
    // A broadcast must not divide as an average does.
    let text = "rank 0, channel 0, item 0, block 0: the output holds the finished block 0 of ranks 0 where the unfinished block 0 of ranks 0 is wanted";
    rejected(SPREAD, &plain(1, [vec![sum([input(0)]).store(output(0))]]), text);
}

#[test]
fn a_message_of_another_length() {
    let both = |buffer| Slice {
        run: 2,
        ..grain(buffer, 0)
    };
    let schedules = plain(
        2,
        [
            vec![
                Step::copy(Source::Slice(both(Buffer::Input)))
                    .store(both(Buffer::Output))
                    .send(to(1)),
            ],
            vec![
                Step::copy(recv(0)).store(output(0)),
                Step::copy(recv(0)).store(output(1)),
            ],
        ],
    );
    let text = "rank 1, channel 0, item 0: expects 1 grains from rank 0, whose message has 2";
    rejected(SPREAD, &schedules, text);
}

#[test]
fn messages_without_their_other_end() {
    let [send, add] = second();
    let text = "rank 0, channel 0, item 1: waits for a message from rank 1 that is never sent";
    rejected(SUM, &against(vec![add.clone()]), text);
    let text = "rank 1, channel 0, item 1: its message to rank 0 is never received";
    rejected(SUM, &against(vec![send.clone(), send.clone(), add.clone()]), text);
    let text =
        "rank 1, channel 0, item 2: waits for room in its lane to rank 0, which never takes what is there";
    rejected(
        SUM,
        &against(vec![send.clone(), send.clone(), send.clone(), add.clone()]),
        text,
    );
    // The other rank has no such channel.
    let mut schedules = against(vec![send.clone(), add]);
    schedules[1].channels.push(vec![Item::Step(send)]);
    let text = "rank 1, channel 1, item 0: its message to rank 0 is never received";
    rejected(SUM, &schedules, text);
}

#[test]
fn ranks_that_wait_for_each_other() {
    let of = |me: usize| {
        let add = Step::of(How::ReduceLast, [recv(1 - me), input(0)]).store(output(0));
        vec![add, Step::copy(input(0)).send(to(1 - me))]
    };
    let text = "rank 0, channel 0, item 0: deadlock: rank 0 (channel 0, item 0) waits for a message from rank 1, rank 1 (channel 0, item 0) waits for a message from rank 0";
    rejected(SUM, &plain(1, [of(0), of(1)]), text);
}

#[test]
fn channels_that_wait_for_each_other() {
    let wait = |channel| Step {
        after: Some((channel, 0)),
        ..sum([input(0)]).store(output(0))
    };
    let text = "rank 0, channel 0, item 0: deadlock: rank 0 (channel 0, item 0) waits for item 0 of its channel 1, rank 0 (channel 1, item 0) waits for item 0 of its channel 0";
    rejected(SUM, &channels(1, [vec![vec![wait(1)], vec![wait(0)]]]), text);
}

#[test]
fn slots_are_counted() {
    // Both send two messages before they take the first.
    let of = |me: usize| {
        let send = |at| Step::copy(input(at)).send(to(1 - me));
        let add = |at| sum([recv(1 - me), input(at)]).store(output(at));
        vec![send(0), send(1), add(0), add(1)]
    };
    let schedules = plain(2, [of(0), of(1)]);
    for in_place in [false, true] {
        let with = |mode| run(SUM, &schedules, in_place, mode);
        assert!(
            with(Mode::buffered(1))
                .unwrap_err()
                .to_string()
                .contains("waits for room in its lane to rank 1")
        );
        with(Mode::buffered(2)).unwrap();
        with(Mode::POSTED).unwrap();
    }
}

/// An exchange of 3 blocks of 2 grains: the even grains in one message, the odd ones by way of scratch memory.
fn strided(me: usize) -> Schedule {
    let every_other = |buffer, at| Slice {
        stride: 2,
        reps: 3,
        ..grain(buffer, at)
    };
    let own = |at| Source::Slice(every_other(Buffer::Input, at));
    let send = |at| Step::copy(own(at)).send(to(1 - me));
    let kept = every_other(Buffer::Scratch, 7);
    let steps = vec![
        send(0),
        sum([recv(1 - me), own(0)]).store(every_other(Buffer::Output, 0)),
        send(1),
        Step::copy(recv(1 - me)).store(kept),
        sum([Source::Slice(kept), own(1)]).store(every_other(Buffer::Output, 1)),
    ];
    Schedule {
        grains: 2,
        scratch: 12,
        ..Schedule::plain(2, 3, steps.into_iter().map(Item::Step).collect())
    }
}

#[test]
fn runs_strides_and_scratch() {
    verify_all(SUM, &[strided(0), strided(1)]).unwrap();
    let mut schedules = [strided(0), strided(1)];
    let Item::Step(step) = &mut schedules[1].channels[0][4] else {
        unreachable!()
    };
    step.stores[0].first = Affine::fixed(3);
    // Grain 1, the first of the three, goes to where grain 3 belongs.
    let flaw = verify_all(SUM, &schedules).unwrap_err().to_string();
    assert_eq!(
        flaw,
        "rank 1, channel 0, item 4, block 0, grain 1: stores it at position 3 of Output, which the rank does not know to be as long"
    );
}

/// What passes on others' blocks is right for equal ones. Of given ones a rank knows its own, but in an all-gather.
#[test]
fn lengths_that_a_rank_does_not_know() {
    let mut algorithms = crate::plan::algo::ALGORITHMS.iter();
    let bruck = algorithms.find(|algorithm| algorithm.name == "bruck").unwrap();
    let passed_on = super::built(bruck, Collective::AllGather, 4);
    verify_all(Collective::AllGatherV, &passed_on).unwrap();
    // Rank 2's block goes to the root by way of rank 1.
    let root = vec![
        Step::copy(input(0)).store(output(0)),
        Step::copy(recv(1)).store(output(1)),
        Step::copy(recv(1)).store(output(2)),
    ];
    let middle = vec![
        Step::copy(input(1)).send(to(0)),
        Step::copy(recv(2)).store(scratch(2)).send(to(0)),
    ];
    let mut schedules = plain(3, [root, middle, vec![Step::copy(input(2)).send(to(1))]]);
    schedules[1].scratch = 3;
    verify_all(Collective::Gather { root: 0 }, &schedules).unwrap();
    let text = "rank 1, channel 0, item 1, block 2: stores it at position 2 of Scratch, which the rank does not know to be as long";
    rejected(Collective::GatherV { root: 0 }, &schedules, text);
    // Rank 0 has its block for rank 1 lie where that for rank 0 would, before it is sent.
    let by_way_of = |place| {
        let first = vec![
            Step::copy(input(0)).store(output(0)),
            Step::copy(input(1)).store(place),
            Step::copy(Source::Slice(place)).send(to(1)),
            Step::copy(recv(1)).store(output(1)),
        ];
        let second = vec![
            Step::copy(input(0)).send(to(0)),
            Step::copy(input(1)).store(output(1)),
            Step::copy(recv(0)).store(output(0)),
        ];
        let mut schedules = plain(2, [first, second]);
        schedules[0].scratch = 2;
        schedules
    };
    verify_all(Collective::AlltoAll, &by_way_of(scratch(0))).unwrap();
    // With given blocks no place there is right, not even that of the block itself: it is as long as the block that comes from rank
    // 1 where nothing goes to it.
    for at in [0, 1] {
        let text = format!(
            "rank 0, channel 0, item 1, block 1: stores it at position {at} of Scratch, which the rank does not know to be as long"
        );
        rejected(Collective::AlltoAllV, &by_way_of(scratch(at)), &text);
    }
}

#[test]
fn flaws_in_repeats_name_the_turn_and_labels_the_number_of_ranks() {
    let ranks = 200;
    let ring = crate::plan::algo::ALGORITHMS
        .iter()
        .find(|algorithm| algorithm.name == "ring")
        .unwrap();
    let mut schedules = super::built(ring, SUM, ranks);
    let Item::Repeat { items, .. } = &mut schedules[7].channels[0][1] else {
        unreachable!()
    };
    let Item::Step(step) = &mut items[0] else {
        unreachable!()
    };
    step.how = How::ReduceLast;
    let text = "rank 8, channel 0, item 1.0 (turn 1), block 6: reduces a value that is finished already";
    // Not turned copies of each other, so each is run.
    let flaw = verify(SUM, ranks, |rank| schedules[rank].clone()).unwrap_err();
    assert_eq!(flaw.to_string(), text);
    // The same mistake on every rank is found by running one.
    let flaw = verify(SUM, ranks, |rank| {
        let mut schedule = super::built_one(ring, SUM, ranks, rank);
        schedule.channels[0].swap(0, 1);
        schedule
    });
    let flaw = flaw.unwrap_err().to_string();
    assert!(
        flaw.contains("deadlock: rank 0 (channel 0, item 0.0 (turn 0)) waits for a message from rank 199"),
        "{flaw}"
    );
}
