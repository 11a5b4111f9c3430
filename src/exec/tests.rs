//! The host executor over the simulated transport: results under adversarial orders, offers, and mutants.

use super::{Lend, Progress, Run, Work};
use crate::{
    mem::Region,
    plan::{
        algo::{Algorithm, Request, fitting},
        choose,
        layout::{Layout, Tiling},
        schedule::Schedule,
        verify::{Proof, mutate, verify_all},
    },
    transport::{LANES, sim},
    types::{Call, Collective, DType, Op},
};

/// One simulated call: `u64` contributions of which a lost, doubled or misplaced one changes the result.
struct Trial<'a> {
    collective: Collective,
    schedules: &'a [Schedule],
    count: usize,
    in_place: bool,
    tile: usize,
    copies: usize,
    /// With it, sends that it marks are offered where the simulation takes offers (0 slots).
    proof: Option<&'a Proof>,
}

impl Trial<'_> {
    fn input(&self, rank: usize, i: usize) -> u64 {
        (1 << (rank % 40)) * 0x1_0001 + (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn wanted(&self, i: usize) -> u64 {
        match self.collective {
            Collective::AllReduce | Collective::Barrier => {
                (0..self.schedules.len()).fold(0, |sum, r| sum.wrapping_add(self.input(r, i)))
            }
            Collective::Broadcast { root } => self.input(root as usize, i),
        }
    }

    /// Runs it with `slots` a lane in the order that `seed` gives. `Err` tells what went wrong.
    fn run(&self, slots: usize, seed: u64) -> Result<(), String> {
        let n = self.schedules.len();
        let inputs: Vec<Vec<u64>> = (0..n)
            .map(|r| (0..self.count).map(|i| self.input(r, i)).collect())
            .collect();
        let mut outputs = if self.in_place {
            inputs.clone()
        } else {
            vec![vec![u64::MAX; self.count]; n]
        };
        let world = sim::World::new(n, slots, seed);
        let first = &self.schedules[0];
        let layout = Layout {
            count: self.count,
            blocks: first.blocks as usize,
            grains: first.grains as usize,
        };
        let tiling = Tiling::new(layout.longest(), self.tile, 1);
        let mut scratch: Vec<Vec<u64>> = self
            .schedules
            .iter()
            .map(|s| vec![0; Work::scratch_bytes(s, &tiling, self.copies, DType::Uint64) / 8])
            .collect();
        let call = Call {
            seq: 3,
            collective: self.collective,
            count: self.count as u64,
            dtype: DType::Uint64,
            op: Op::Sum,
        };
        let mut runs: Vec<Run<'_>> = Vec::new();
        for (r, (output, scratch)) in outputs.iter_mut().zip(&mut scratch).enumerate() {
            let output = Region::of_mut(output);
            let input = if self.in_place {
                output
            } else {
                Region::of(&inputs[r])
            };
            runs.push(Run::new(Work {
                schedule: &self.schedules[r],
                layout,
                tiling,
                copies: self.copies,
                dtype: DType::Uint64,
                op: Op::Sum,
                header: call.signature(),
                input,
                output,
                scratch: Region::of_mut(scratch),
                lend: self.proof.map(|proof| Lend {
                    proof,
                    rank: r,
                    in_place: self.in_place,
                }),
            }));
        }
        finish(&world, &mut runs)?;
        drop(runs);
        for (r, output) in outputs.iter().enumerate() {
            if let Some(i) = (0..self.count).find(|&i| output[i] != self.wanted(i)) {
                return Err(format!(
                    "rank {r} element {i}: {:#x}, wanted {:#x}",
                    output[i],
                    self.wanted(i)
                ));
            }
        }
        Ok(())
    }
}

/// Polls the runs in the world's order until all are done.
fn finish(world: &sim::World, runs: &mut [Run<'_>]) -> Result<(), String> {
    let mut open: Vec<bool> = vec![true; runs.len()];
    let mut idle = 0;
    while open.contains(&true) {
        let rank = world.next_rank();
        if !open[rank] {
            continue;
        }
        match runs[rank]
            .poll(&world.wires(rank))
            .map_err(|fault| format!("rank {rank}: {fault:?}"))?
        {
            Progress::Done => open[rank] = false,
            Progress::Moved => idle = 0,
            Progress::Blocked => idle += 1,
        }
        if idle > STUCK * runs.len() {
            return Err(format!(
                "stuck: rank {rank} waits for {:?}",
                runs[rank].waits_for()
            ));
        }
    }
    Ok(())
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

fn collectives(ranks: usize) -> impl Iterator<Item = Collective> {
    let roots = [0, ranks / 2, ranks - 1]
        .into_iter()
        .map(|root| Collective::Broadcast { root: root as u32 });
    [Collective::AllReduce, Collective::Barrier]
        .into_iter()
        .chain(roots)
}

#[test]
fn every_algorithm_is_right_under_adversarial_orders() {
    let mut cases = 0;
    for n in (1..=9).chain([16]) {
        for collective in collectives(n) {
            for algorithm in fitting(collective) {
                let schedules = schedules(algorithm, collective, n);
                let proof = verify_all(collective, &schedules).unwrap();
                let proof = Some(&proof);
                for (count, tile, copies) in [
                    (1, 4, 1),
                    (n - 1, 4, 1),
                    (n + 1, 1, 3),
                    (101, 7, 2),
                    (500, 16, LANES),
                ] {
                    for in_place in [false, true] {
                        for (slots, seed) in [(0, 9), (0, 10), (1, 11), (1, 12), (2, 13), (4, 14)] {
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
    println!("{cases} simulated calls were right");
}

#[test]
fn the_planners_tiles_are_right_too() {
    for n in [2, 3, 8] {
        for algorithm in fitting(Collective::AllReduce) {
            let schedules = schedules(algorithm, Collective::AllReduce, n);
            let count = 40_000;
            let layout = Layout {
                count,
                blocks: schedules[0].blocks as usize,
                grains: 1,
            };
            let (tiling, copies) = choose::tiling(&schedules[0], &layout, 8, 4096, LANES).unwrap();
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
                trial.run(slots, seed).unwrap_or_else(|why| {
                    panic!(
                        "{algorithm} n={ranks} {:?} of rank {}: slots={slots} in_place={in_place} seed={seed}: {why}",
                        mutant.mutation, mutant.rank
                    )
                });
            }
        }
    }
    println!(
        "{} accepted mutants of {} gave right results in {ORDERS} orders each",
        accepted.len(),
        mutate::COUNT
    );
}

/// Adversarial orders that each accepted mutant is run in.
const ORDERS: u64 = 100;
