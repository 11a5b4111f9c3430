//! The host executor over the simulated transport: results under adversarial orders, offers, and mutants.

mod faults;
mod reproducible;
mod vector;

use super::{Fault, Lend, Progress, Run, Short, Straight, Turn, Work};
use crate::{
    mem::Region,
    plan::{
        algo::{ALGORITHMS, Algorithm, Request, fitting},
        choose::{self, TileBytes},
        cost::Load,
        definition::{self, Held, Wanted},
        groups::Groups,
        layout::{Grains, Layout, Tiling},
        schedule::{Extent, Schedule},
        verify::{Proof, mutate, verify_all},
    },
    transport::{Body, CALL_LANES, Link as _, Wires as _, sim, words_of},
    types::{Call, Collective, DType, Op},
};

use std::ops::Range;

/// One simulated call: `u64` contributions of which a lost, doubled or misplaced one changes the result.
struct Trial<'a> {
    collective: Collective,
    schedules: &'a [Schedule],
    count: usize,
    in_place: bool,
    tile: usize,
    /// Tiles in flight: fewer where the lanes do not suffice for the channels of so many.
    copies: usize,
    /// With it, sends that it marks are offered where the simulation takes offers (0 slots).
    proof: Option<&'a Proof>,
}

impl Trial<'_> {
    fn input(&self, rank: usize, i: usize) -> u64 {
        (1 << (rank % 40)) * 0x1_0001 + (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Elements of the whole vector.
    fn total(&self) -> usize {
        definition::total(self.collective, self.schedules.len(), self.count).unwrap()
    }

    fn held(&self, rank: usize) -> Held {
        definition::held(self.collective, self.schedules.len(), rank, self.count)
    }

    /// What element `i` of the vector must be on `rank`, which has it.
    fn wanted(&self, rank: usize, i: usize) -> u64 {
        let (ranks, has_blocks) = (self.schedules.len(), self.collective.has_blocks());
        let (block, at) = if has_blocks {
            (i / self.count, i % self.count)
        } else {
            (0, i)
        };
        match definition::wanted(self.collective, rank, block) {
            Wanted::ReductionOf { .. } => (0..ranks).fold(0, |sum, r| sum.wrapping_add(self.input(r, i))),
            Wanted::CopyOf { rank, block } if has_blocks => self.input(rank, block * self.count + at),
            Wanted::CopyOf { rank, .. } => self.input(rank, i),
        }
    }

    /// A rank's memory before: in place the whole vector, of which it uses a part; else what it is to receive.
    fn before(&self, rank: usize) -> Vec<u64> {
        let held = self.held(rank);
        let given = |i| {
            if held.input.contains(&i) {
                self.input(rank, i)
            } else {
                u64::MAX
            }
        };
        match self.in_place {
            true => (0..self.total()).map(given).collect(),
            false => vec![u64::MAX; held.output.len()],
        }
    }

    /// The same afterwards: what is not received stays as it was.
    fn after(&self, rank: usize) -> Vec<u64> {
        let (mut memory, held) = (self.before(rank), self.held(rank));
        let begin = if self.in_place { 0 } else { held.output.start };
        for i in held.output {
            memory[i - begin] = self.wanted(rank, i);
        }
        memory
    }

    /// Runs it with `slots` a lane in the order that `seed` gives. `Err` tells what went wrong.
    fn run(&self, slots: usize, seed: u64) -> Result<(), String> {
        let all = vec![true; self.schedules.len()];
        self.play(slots, seed, |world, works| finish(world, works).map(|()| all))
            .map(|_| ())
    }

    /// Has `play` run it, which says which ranks came to their end: those must have the right results.
    fn play(
        &self,
        slots: usize,
        seed: u64,
        play: impl FnOnce(&sim::World, &[Work<'_>]) -> Result<Vec<bool>, String>,
    ) -> Result<Vec<bool>, String> {
        let n = self.schedules.len();
        let inputs: Vec<Vec<u64>> = (0..n)
            .map(|r| self.held(r).input.map(|i| self.input(r, i)).collect())
            .collect();
        let mut outputs: Vec<Vec<u64>> = (0..n).map(|r| self.before(r)).collect();
        let world = sim::World::new(n, slots, seed);
        let first = &self.schedules[0];
        let channels = Extent::of_all(self.schedules.iter().map(Schedule::extent)).channels;
        let copies = self.copies.min(CALL_LANES / channels);
        let layout = Layout {
            count: self.total(),
            blocks: first.blocks as usize,
            grains: first.grains as usize,
        };
        let tiling = Tiling::new(layout.longest(), self.tile, 1);
        let mut scratch: Vec<Vec<u64>> = self
            .schedules
            .iter()
            .map(|s| vec![0; Work::scratch_bytes(s, &tiling, copies, DType::Uint64) / 8])
            .collect();
        let call = Call {
            seq: 3,
            collective: self.collective,
            count: self.count as u64,
            dtype: DType::Uint64,
            op: Op::Sum,
        };
        let mut works: Vec<Work<'_>> = Vec::new();
        for (r, (output, scratch)) in outputs.iter_mut().zip(&mut scratch).enumerate() {
            let (memory, held) = (Region::of_mut(output), self.held(r));
            let part = |range: &Range<usize>| memory.part(8 * range.start, 8 * range.len());
            let (input, output) = match self.in_place {
                true => (part(&held.input), part(&held.output)),
                false => (Region::of(&inputs[r]), memory),
            };
            works.push(Work {
                schedule: &self.schedules[r],
                grains: Grains::Cut {
                    layout,
                    begins: [held.input.start, held.output.start],
                },
                tiling,
                copies,
                channels,
                first_lane: seed as usize % CALL_LANES,
                dtype: DType::Uint64,
                op: Op::Sum,
                tree: false,
                scalar: None,
                header: call.signature(),
                input,
                output,
                scratch: Region::of_mut(scratch),
                streams: seed.is_multiple_of(3),
                past: seed.is_multiple_of(4),
                lend: self.proof.map(|proof| Lend {
                    proof,
                    rank: r,
                    in_place: self.in_place,
                    read: 0,
                    taken: usize::MAX,
                    paged: 0,
                }),
                helpers: None,
            });
        }
        let done = play(&world, &works)?;
        drop(works);
        for (r, output) in outputs.iter().enumerate().filter(|&(r, _)| done[r]) {
            let wanted = self.after(r);
            if let Some(i) = (0..wanted.len()).find(|&i| output[i] != wanted[i]) {
                return Err(format!(
                    "rank {r} element {i}: {:#x}, wanted {:#x}",
                    output[i], wanted[i]
                ));
            }
        }
        Ok(done)
    }
}

/// The ranks of a simulated call, each of which begins in its own way with its first turn.
struct Ranks<'m> {
    works: Vec<Work<'m>>,
    straight: Vec<bool>,
    runs: Vec<Option<Run>>,
}

impl<'m> Ranks<'m> {
    /// Half of the ranks go straight where they can, from their first turn on until something is not there; they offer nothing.
    fn new(world: &sim::World, works: &[Work<'m>]) -> Self {
        let straight: Vec<bool> = works
            .iter()
            .map(|_| world.next_rank().is_multiple_of(2))
            .collect();
        let works = works.iter().zip(&straight).map(|(work, &straight)| Work {
            lend: work.lend.filter(|_| !straight),
            ..*work
        });
        Ranks {
            works: works.collect(),
            runs: straight.iter().map(|_| None).collect(),
            straight,
        }
    }

    /// A rank's turn.
    fn poll(&mut self, world: &sim::World, rank: usize) -> Result<Progress, String> {
        let wires = world.wires(rank);
        let run = match self.runs[rank].take() {
            Some(run) => Ok(run),
            None => self.begin(world, rank),
        };
        let polled = run.and_then(|run| {
            let run = self.runs[rank].insert(run);
            run.poll(&self.works[rank], &wires)
        });
        polled.map_err(|fault| format!("rank {rank}: {fault:?}"))
    }

    fn begin(&self, world: &sim::World, rank: usize) -> Result<Run, Fault> {
        let work = &self.works[rank];
        if !self.straight[rank] || work.scalar.is_some() {
            return Ok(Run::new(work));
        }
        if let Some(short) = Short::new(work).filter(|_| world.next_rank().is_multiple_of(2)) {
            assert!(short.scratch_words() * size_of::<u64>() <= work.scratch.len());
            let turn = Turn {
                words: words_of(work.header),
                lane: work.first_lane,
                buffers: &[work.input, work.output],
                scratch: work.scratch,
                is_alone: true,
            };
            let mut begun = 0;
            let reached = short.run(&turn, &world.wires(rank), || begun += 1, |looks| looks < 3);
            assert_eq!(begun, 1);
            return Ok(match reached {
                Some(reached) => Run::after(work, &[reached]),
                None => Run::over(work),
            });
        }
        match Straight::new(work.schedule, &work.grains, &work.tiling, work.dtype.size()) {
            Some(straight) => {
                let reached = straight.run(work, &world.wires(rank), |looks| looks < 3);
                reached.map(|reached| match reached {
                    Some(reached) => Run::after(work, &reached),
                    None => Run::over(work),
                })
            }
            None => Ok(Run::new(work)),
        }
    }

    /// The ranks that one waits for, if it has begun.
    fn waits_for(&self, rank: usize) -> Vec<usize> {
        self.runs[rank].as_ref().map_or(Vec::new(), Run::waits_for)
    }
}

/// Polls the runs in the world's order until all are done.
fn finish(world: &sim::World, works: &[Work<'_>]) -> Result<(), String> {
    let mut ranks = Ranks::new(world, works);
    let mut open: Vec<bool> = vec![true; works.len()];
    let mut idle = 0;
    while open.contains(&true) {
        let rank = world.next_rank();
        if !open[rank] {
            continue;
        }
        match ranks.poll(world, rank)? {
            Progress::Done => open[rank] = false,
            Progress::Moved => idle = 0,
            Progress::Blocked => idle += 1,
        }
        if idle > STUCK * works.len() {
            return Err(format!(
                "stuck: rank {rank} waits for {:?}",
                ranks.waits_for(rank)
            ));
        }
    }
    Ok(())
}

/// Over rails, messages have grains that lie apart, and of few elements some grains have none.
#[test]
fn hierarchies_are_right_whatever_the_count() {
    let mut cases = 0;
    let of_sizes = |sizes: &[usize]| {
        let hosts = sizes.iter().enumerate();
        hosts.flat_map(|(host, &ranks)| vec![host; ranks]).collect()
    };
    // Of the last ranks are dealt out by turns, so that rings and chains go another way, too.
    let turns: Vec<usize> = (0..11).map(|rank| rank % 3).collect();
    for hosts in [
        of_sizes(&[12, 12]),
        of_sizes(&[9, 9, 9]),
        of_sizes(&[10, 3, 1]),
        turns,
    ] {
        let (ranks, groups) = (hosts.len(), Groups::listed(hosts));
        let concerned = |algorithm: &&Algorithm| algorithm.concerned(Some(&groups)).is_some();
        for algorithm in ALGORITHMS.iter().filter(concerned) {
            let collectives = definition::every([0, ranks - 1]).into_iter();
            for collective in collectives.filter(|&of| (algorithm.fits)(of) && !of.has_given_blocks()) {
                let of = |rank| {
                    let request = Request {
                        collective,
                        ranks,
                        rank,
                    };
                    algorithm.schedule(&request, Some(&groups))
                };
                let schedules: Vec<Schedule> = (0..ranks).map(of).collect();
                for (count, in_place) in (0..40).flat_map(|count| [(count, false), (count, true)]) {
                    let trial = Trial {
                        collective,
                        schedules: &schedules,
                        count,
                        in_place,
                        tile: 1000,
                        copies: 1,
                        proof: None,
                    };
                    let what = || format!("{collective:?} among {ranks}, count={count}, in_place={in_place}");
                    trial
                        .run(2, count as u64)
                        .unwrap_or_else(|why| panic!("{}: {why}", what()));
                    cases += 1;
                }
            }
        }
    }
    println!("counted: {cases} simulated calls were right");
}

/// Fruitless looks a rank, after which nothing will come any more: the simulation's delays are far shorter.
const STUCK: usize = 1000;

fn schedules(algorithm: &Algorithm, collective: Collective, ranks: usize) -> Vec<Schedule> {
    (0..ranks)
        .map(|rank| {
            (algorithm.build)(&Request {
                collective,
                ranks,
                rank,
            })
        })
        .collect()
}

#[test]
fn every_algorithm_is_right_under_adversarial_orders() {
    let mut cases = 0;
    for n in (1..=9).chain([16]) {
        let collectives = definition::every([0, n / 2, n - 1]).into_iter();
        for collective in collectives.filter(|collective| !collective.has_given_blocks()) {
            for algorithm in fitting(collective) {
                let schedules = schedules(algorithm, collective, n);
                let proof = verify_all(collective, &schedules).unwrap();
                let proof = Some(&proof);
                for (count, tile, copies) in [
                    (1, 4, 1),
                    (n - 1, 4, 1),
                    (n + 1, 1, 3),
                    (101, 7, 2),
                    (500, 16, CALL_LANES),
                ] {
                    for in_place in [false, true] {
                        for (slots, seed) in [(0, 9), (1, 11), (3, 13)] {
                            let trial = Trial {
                                collective,
                                schedules: &schedules,
                                count,
                                in_place,
                                tile,
                                copies,
                                proof,
                            };
                            trial.run(slots, seed).unwrap_or_else(|why| {
                                panic!(
                                    "{} {collective:?} n={n} count={count} tile={tile} copies={copies} \
                                     in_place={in_place} slots={slots} seed={seed}: {why}",
                                    algorithm.name
                                )
                            });
                            cases += 1;
                        }
                    }
                }
            }
        }
    }
    println!("counted: {cases} simulated calls were right");
}

/// What lies with a sender that is gone never comes: its receiver waits for it, until the floor above knows why.
#[test]
fn a_message_that_is_not_to_be_had_any_more_is_waited_for() {
    let algorithm = fitting(Collective::AllGather).find(|algorithm| algorithm.name == "direct");
    let schedules = schedules(algorithm.unwrap(), Collective::AllGather, 2);
    let proof = verify_all(Collective::AllGather, &schedules).unwrap();
    let layout = Layout {
        count: 20,
        blocks: schedules[0].blocks as usize,
        grains: 1,
    };
    let (inputs, mut outputs) = ([[7u64; 10]; 2], [[0u64; 20]; 2]);
    let mut there = 0;
    for seed in 0..20 {
        let world = sim::World::new(2, 0, seed);
        let [first, second] = &mut outputs;
        let work = |rank: usize, output| Work {
            schedule: &schedules[rank],
            grains: Grains::Cut {
                layout,
                begins: [10 * rank, 0],
            },
            tiling: Tiling::new(layout.longest(), 10, 1),
            copies: 1,
            channels: 1,
            first_lane: 0,
            dtype: DType::Uint64,
            op: Op::Sum,
            tree: false,
            scalar: None,
            header: [3; 4],
            input: Region::of(&inputs[rank]),
            output,
            scratch: Region::empty(),
            streams: false,
            past: false,
            lend: Some(Lend {
                proof: &proof,
                rank,
                in_place: false,
                read: 80,
                taken: usize::MAX,
                paged: 0,
            }),
            helpers: None,
        };
        let works = [work(0, Region::of_mut(first)), work(1, Region::of_mut(second))];
        let wires = [world.wires(0), world.wires(1)];
        let mut runs = [Run::new(&works[0]), Run::new(&works[1])];
        let seen = loop {
            runs[0].poll(&works[0], &wires[0]).unwrap();
            let link = wires[1].from(0).unwrap();
            if let Some(message) = link.and_then(|link| link.peek(0).unwrap()) {
                break message.body;
            }
        };
        if matches!(seen, Body::There(_)) && seed % 2 == 0 {
            // The straight way, which cannot take it, leaves it to who can.
            let work = &works[1];
            let straight = Straight::new(work.schedule, &work.grains, &work.tiling, 8).unwrap();
            let reached = straight.run(work, &wires[1], |looks| {
                assert!((looks as usize) < STUCK, "it waits for what is there");
                true
            });
            runs[1] = Run::after(work, &reached.unwrap().unwrap());
        }
        world.kill(0);
        let polls = (0..STUCK).map(|_| runs[1].poll(&works[1], &wires[1]).unwrap());
        let last = polls.last();
        // Its own offer is never taken either.
        assert_eq!((last, runs[1].waits_for()), (Some(Progress::Blocked), vec![0]));
        there += usize::from(matches!(seen, Body::There(_)));
        assert!(second[..10] != inputs[0], "seed {seed}");
    }
    assert!(there > 0 && there < 20);
}

#[test]
fn the_planners_tiles_are_right_too() {
    for n in [2, 3, 7, 8] {
        for algorithm in fitting(Collective::AllReduce) {
            let schedules = schedules(algorithm, Collective::AllReduce, n);
            let count = 40_000;
            let layout = Layout {
                count,
                blocks: schedules[0].blocks as usize,
                grains: schedules[0].grains as usize,
            };
            let extent = Extent::of_all(schedules.iter().map(Schedule::extent));
            let load = Load::new(Collective::AllReduce, n, count, DType::Uint64);
            let tile = TileBytes::SHARED_MEMORY;
            let (tiling, copies) = choose::tiling(extent, &layout, &load, 4096, CALL_LANES, tile).unwrap();
            let tile = tiling.elements;
            let trial = Trial {
                collective: Collective::AllReduce,
                schedules: &schedules,
                count,
                in_place: true,
                tile,
                copies,
                proof: None,
            };
            trial.run(2, 5).unwrap();
        }
    }
}

#[test]
fn mutants_that_the_verifier_accepts_are_equivalent() {
    let accepted = mutate::accepted_mutants();
    for mutate::Accepted {
        algorithm,
        collective,
        ranks,
        mutant,
    } in &accepted
    {
        let schedules = &mutant.schedules;
        let proof = verify_all(*collective, schedules).unwrap();
        for seed in 0..ORDERS {
            for (slots, in_place) in [(0, false), (0, true), (1, false), (1, true)] {
                let (count, tile, copies, proof) = (5 * ranks + 1, 2, 2, Some(&proof));
                let trial = Trial {
                    collective: *collective,
                    schedules,
                    count,
                    in_place,
                    tile,
                    copies,
                    proof,
                };
                let outcome = match collective.has_given_blocks() {
                    false => trial.run(slots, seed),
                    true => vector::Trial::of(&trial, 5).run(slots, seed),
                };
                outcome.unwrap_or_else(|why| {
                    panic!(
                        "{algorithm} n={ranks} {:?} of rank {}: slots={slots} in_place={in_place} seed={seed}: {why}",
                        mutant.mutation, mutant.rank
                    )
                });
            }
        }
    }
    println!(
        "counted: {} accepted mutants of {} gave right results in {ORDERS} orders each",
        accepted.len(),
        mutate::COUNT
    );
}

/// Adversarial orders that each accepted mutant is run in.
const ORDERS: u64 = 50;
