//! Random groups among simulated ranks whose lanes have one credit: no deadlock, right results.

use super::{
    super::job::{Collecting, Gate, Placed},
    *,
};
use crate::{
    comm::{buffers::Places, plans::Plans},
    exec::{Completion, Posted, Sending, Wanted},
    mem::Owned,
    plan::{
        algo::{Algorithm, fitting},
        cost::{Load, Machine},
        definition::{self, Held, Wanted as Content},
        layout::Blocks,
    },
    transport::{CALL_LANES, sim},
    types::{Call, Collective, DType, Op, Transfer},
};
use std::sync::Arc;
#[cfg(feature = "cuda")]
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What all ranks do together.
enum Operation {
    Collective {
        collective: Collective,
        algorithm: &'static Algorithm,
        count: usize,
    },
    Message {
        from: usize,
        to: usize,
        tag: i32,
        count: usize,
        /// Whether the receiver takes it from any rank.
        from_any: bool,
    },
}

/// One operation on one rank: what it holds while it goes on, and what it must hold then.
struct Part {
    output: Arc<Owned<u64>>,
    wanted: Vec<u64>,
    completion: Arc<Completion>,
    gate: Option<Arc<Gate>>,
}

/// A contribution that no other element has.
fn value(operation: usize, rank: usize, i: usize) -> u64 {
    (operation as u64) << 40 | (rank as u64) << 32 | i as u64
}

/// What element i of a rank's output must be where blocks are equally long.
fn wanted(
    operation: usize,
    (rank, ranks): (usize, usize),
    collective: Collective,
    count: usize,
) -> impl Fn(usize) -> u64 {
    let block = if collective.has_blocks() {
        count
    } else {
        usize::MAX
    };
    move |i| match definition::wanted(collective, rank, i / block) {
        Content::ReductionOf { .. } => {
            (0..ranks).fold(0u64, |sum, r| sum.wrapping_add(value(operation, r, i)))
        }
        Content::CopyOf { rank, block: from } => {
            value(operation, rank, from.wrapping_mul(block).wrapping_add(i % block))
        }
    }
}

/// What a rank's output must be with these blocks of all ranks.
fn wanted_of(operation: usize, rank: usize, collective: Collective, blocks: &[Blocks]) -> Vec<u64> {
    let value = |rank: usize, block: usize, i: usize| {
        let at = blocks[rank].sides[0][block].start;
        value(operation, rank, at + i)
    };
    let mut wanted = vec![0; blocks[rank].span(1)];
    for (block, at) in blocks[rank].sides[1].iter().enumerate() {
        for i in 0..at.len() {
            wanted[at.start + i] = match definition::wanted(collective, rank, block) {
                Content::ReductionOf { block } => {
                    (0..blocks.len()).fold(0u64, |sum, r| sum.wrapping_add(value(r, block, i)))
                }
                Content::CopyOf { rank, block } => value(rank, block, i),
            };
        }
    }
    wanted
}

fn random_operation(random: &mut fastrand::Rng, ranks: usize, tag: i32) -> Operation {
    if random.bool() {
        return Operation::Message {
            from: random.usize(..ranks),
            to: random.usize(..ranks),
            tag,
            // Up to several pieces; 8 KiB travel ahead.
            count: random.choice([0, 1, 500, 1024, 1025, 9000]).unwrap(),
            from_any: random.u8(..4) == 0,
        };
    }
    let collectives = definition::every([random.usize(..ranks)]);
    let collective = *random.choice(&collectives).unwrap();
    let algorithms: Vec<_> = fitting(collective).collect();
    Operation::Collective {
        collective,
        algorithm: random.choice(algorithms).unwrap(),
        count: if collective.has_vector() {
            random.usize(1..4000)
        } else {
            1
        },
    }
}

struct Rank {
    jobs: Jobs,
    plans: Plans,
    lane: usize,
    parts: Vec<Part>,
}

impl Rank {
    fn new(rank: usize, ranks: usize) -> Self {
        Rank {
            jobs: Jobs::new(rank, ranks),
            plans: Plans::default(),
            lane: 0,
            parts: Vec::new(),
        }
    }

    fn begin(
        &mut self,
        rank: usize,
        ranks: usize,
        index: usize,
        operation: &Operation,
        gate: Option<Arc<Gate>>,
    ) {
        match *operation {
            Operation::Collective {
                collective,
                algorithm,
                count,
            } => self.collective((rank, ranks), index, (collective, algorithm, count), gate),
            Operation::Message {
                from,
                to,
                tag,
                count,
                from_any,
            } => {
                let sent: Vec<u64> = (0..count).map(|i| value(index, from, i)).collect();
                if rank == from {
                    let (data, completion) = (Owned::new(sent.clone()), Completion::new());
                    let sending = Sending::new(data.hold(), tag, DType::Uint64, completion.clone());
                    self.push(What::Send(to, sending), gate.clone());
                    self.keep(data, sent.clone(), completion, gate.clone());
                }
                if rank == to {
                    let (data, completion) = (Owned::new(vec![0; count]), Completion::new());
                    let wanted = Wanted {
                        from: (!from_any).then_some(from),
                        tag: Some(tag),
                        dtype: DType::Uint64,
                        exact: true,
                    };
                    let posted = Posted::new(data.hold(), wanted, completion.clone());
                    self.push(What::Receive(posted), gate.clone());
                    self.keep(data, sent, completion, gate);
                }
            }
        }
    }

    fn collective(
        &mut self,
        (rank, ranks): (usize, usize),
        index: usize,
        (collective, algorithm, count): (Collective, &'static Algorithm, usize),
        gate: Option<Arc<Gate>>,
    ) {
        // Of all ranks, where they are given.
        let blocks: Vec<Blocks> = (0..ranks)
            .map(|rank| Blocks::random(collective, ranks, rank, count, index as u64))
            .collect();
        let given = blocks.get(rank).filter(|_| collective.has_given_blocks());
        let load = match given {
            None => Load::new(collective, ranks, count, DType::Uint64),
            Some(blocks) => Load::given(collective, ranks, blocks, DType::Uint64),
        };
        let plan = self.plans.prepare(
            load,
            rank,
            &Machine::shared_memory(ranks),
            None,
            (|| Ok(algorithm), String::new),
        );
        let plan = plan.unwrap();
        let first_lane = self.lane;
        self.lane = (self.lane + plan.copies * plan.channels) % CALL_LANES;
        let call = Call {
            seq: index as u32,
            collective,
            count: count as u64,
            dtype: DType::Uint64,
            op: Op::Sum,
        };
        let held = match given {
            None => definition::held(collective, ranks, rank, count),
            Some(blocks) => Held {
                input: 0..blocks.span(0),
                output: 0..blocks.span(1),
            },
        };
        let input = Owned::new(held.input.clone().map(|i| value(index, rank, i)).collect());
        let output = Owned::new(vec![0; held.output.len()]);
        let completion = Completion::new();
        let places = match given {
            None => Places::From([held.input.start, held.output.start]),
            Some(blocks) => Places::Given(Arc::new(blocks.clone())),
        };
        let wanted = match given {
            None => held
                .output
                .map(wanted(index, (rank, ranks), collective, count))
                .collect(),
            Some(_) => wanted_of(index, rank, collective, &blocks),
        };
        let placed = Placed::new(plan, places, call, first_lane);
        let memory = [input.hold(), output.hold()];
        let collecting = Collecting::new(placed, memory, completion.clone());
        self.push(What::Collective(Box::new(collecting)), gate.clone());
        self.keep(output, wanted, completion, gate);
    }

    fn push(&mut self, what: What, gate: Option<Arc<Gate>>) {
        self.jobs.extend([Job { what, gate }].into_iter());
    }

    fn keep(
        &mut self,
        output: Arc<Owned<u64>>,
        wanted: Vec<u64>,
        completion: Arc<Completion>,
        gate: Option<Arc<Gate>>,
    ) {
        self.parts.push(Part {
            output,
            wanted,
            completion,
            gate,
        });
    }
}

/// Runs a random group; how many operations it had.
fn group(seed: u64) -> usize {
    let mut random = fastrand::Rng::with_seed(seed);
    let ranks = random.usize(1..6);
    let world = sim::World::new(ranks, 1, seed).with_max_message(64 << 10);
    // A receive from any rank takes whatever has its tag, so that each message has one of its own.
    let operations: Vec<Operation> = (0..random.usize(1..12))
        .map(|tag| random_operation(&mut random, ranks, tag as i32))
        .collect();
    let mut all: Vec<Rank> = (0..ranks).map(|rank| Rank::new(rank, ranks)).collect();
    for (rank, one) in all.iter_mut().enumerate() {
        // Collective calls have the same order on all ranks; messages come anywhere between them.
        let (mut messages, calls): (Vec<usize>, Vec<usize>) =
            (0..operations.len()).partition(|&i| matches!(operations[i], Operation::Message { .. }));
        random.shuffle(&mut messages);
        let mut order = calls;
        for message in messages {
            order.insert(random.usize(..=order.len()), message);
        }
        // Each collective call is in one of two streams, on each rank as it likes.
        for index in order {
            let is_gated = matches!(operations[index], Operation::Collective { .. }) && random.bool();
            let gate = is_gated.then(|| Arc::new(Gate::default()));
            one.begin(rank, ranks, index, &operations[index], gate);
        }
    }
    let mut idle = 0;
    while all.iter().any(|one| !one.jobs.is_idle()) {
        let rank = world.next_rank();
        let one = &mut all[rank];
        let (moved, _) = one.jobs.poll(&world.wires(rank), 0).unwrap();
        // A stream's next operation begins when the one before it is over.
        if let Some(next) = one
            .parts
            .iter()
            .find(|part| part.gate.is_some() && !part.completion.is_over())
            && let Some(gate) = &next.gate
        {
            gate.open();
        }
        idle = if moved { 0 } else { idle + 1 };
        assert!(
            idle < STUCK * ranks,
            "seed {seed}: rank {rank} stands still: {:?}",
            one.jobs
        );
    }
    for (rank, one) in all.into_iter().enumerate() {
        for part in one.parts {
            assert_eq!(
                part.completion.outcome().map(|outcome| outcome.is_ok()),
                Some(true)
            );
            assert!(
                part.output.into_vec() == Some(part.wanted),
                "seed {seed}: rank {rank} has wrong data"
            );
        }
    }
    operations.len()
}

/// The oldest message speaks for all, but for those with a rank that is lost.
#[test]
fn a_loss_is_told_of_what_is_under_way_with_the_lost_rank() {
    let world = sim::World::new(4, 1, 7).with_max_message(64 << 10);
    let mut one = Rank::new(0, 4);
    for (from, tag) in [(1, 5), (2, 6), (2, 7)] {
        let message = Operation::Message {
            from,
            to: 0,
            tag,
            count: 8,
            from_any: false,
        };
        one.begin(0, 4, tag as usize, &message, None);
        one.jobs.poll(&world.wires(0), 0).unwrap();
    }
    let mut stuck = Vec::new();
    one.jobs.stuck(&mut stuck, |since| since.elapsed());
    let during = stuck[0].operation;
    let tag_of = |during: Option<crate::types::Operation>| match during {
        Some(crate::types::Operation::Transfer(Transfer::Recv { tag, .. })) => tag,
        other => panic!("{other:?}"),
    };
    assert_eq!(tag_of(during), Some(5));
    let lost = |rank, seen_by| Cause::Lost {
        rank,
        how: "its process ended".to_owned(),
        seen_by,
        during,
    };
    for (rank, seen_by, tag) in [(1, 0, 5), (2, 0, 6), (3, 0, 5), (2, 1, 5)] {
        let Cause::Lost { during, .. } = one.jobs.placed(lost(rank, seen_by), 0) else {
            panic!("not what it was");
        };
        assert_eq!(tag_of(during), Some(tag), "rank {rank}, seen by {seen_by}");
        let left = Cause::Left {
            rank,
            seen_by,
            during: stuck[0].operation,
        };
        let Cause::Left { during, .. } = one.jobs.placed(left, 0) else {
            panic!("not what it was");
        };
        assert_eq!(tag_of(during), Some(tag), "rank {rank}, seen by {seen_by}");
    }
}

#[test]
fn random_groups_and_crossed_streams_end_with_one_credit_a_lane() {
    let operations: usize = (0..GROUPS).map(group).sum();
    println!("counted: {GROUPS} random groups of {operations} operations were right");
}

/// A gate may open at any time: between looks at it for two messages of one stream, too.
#[cfg(feature = "cuda")]
#[test]
fn messages_of_a_stream_begin_in_their_order_whenever_its_gate_opens() {
    for (opens_after, is_sender) in (0..6).flat_map(|looks| [(looks, true), (looks, false)]) {
        let world = sim::World::new(2, 1, opens_after).with_max_message(64 << 10);
        let looks = Arc::new(AtomicU64::new(0));
        let gate = Arc::new(Gate::watching(move || looks.fetch_add(1, Relaxed) >= opens_after));
        let mut all: Vec<Rank> = (0..2).map(|rank| Rank::new(rank, 2)).collect();
        for index in 0..4 {
            let message = Operation::Message {
                from: 0,
                to: 1,
                tag: 0,
                count: 8,
                from_any: false,
            };
            for (rank, one) in all.iter_mut().enumerate() {
                let gate = (is_sender == (rank == 0)).then(|| Arc::clone(&gate));
                one.begin(rank, 2, index, &message, gate);
            }
        }
        while all.iter().any(|one| !one.jobs.is_idle()) {
            let rank = world.next_rank();
            all[rank].jobs.poll(&world.wires(rank), 0).unwrap();
        }
        for part in all.into_iter().flat_map(|one| one.parts) {
            assert_eq!(
                part.output.into_vec(),
                Some(part.wanted),
                "{opens_after}, {is_sender}"
            );
        }
    }
}

const GROUPS: u64 = 1000;
/// Fruitless looks a rank, after which nothing will come any more: the simulation's delays are far shorter.
const STUCK: usize = 2000;
