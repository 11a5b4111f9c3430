//! The same for blocks that are not equally long.

use super::*;
use crate::plan::layout::Blocks;

/// One simulated call on random blocks.
pub(super) struct Trial<'a> {
    of: &'a super::Trial<'a>,
    /// Of each rank.
    blocks: Vec<Blocks>,
}

impl<'a> Trial<'a> {
    /// With blocks of at most `most` elements, drawn by the count.
    pub(super) fn of(of: &'a super::Trial<'a>, most: usize) -> Self {
        let (collective, ranks) = (of.collective, of.schedules.len());
        let random = |rank| {
            let mut blocks = Blocks::random(collective, ranks, rank, most, of.count as u64);
            if of.in_place && collective != Collective::AlltoAllV {
                lay_in_place(collective, &mut blocks, rank);
            }
            blocks
        };
        Trial {
            of,
            blocks: (0..ranks).map(random).collect(),
        }
    }

    /// Element `i` of what `rank` sends in `block`: whatever lies at its place.
    fn sent(&self, rank: usize, block: usize, i: usize) -> u64 {
        let place = (self.blocks[rank].sides[0][block].start + i) as u64;
        (1 << (rank % 40)) * 0x1_0001 + place.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// What a rank's buffers hold before and after, in place one for both.
    fn before(&self, rank: usize) -> [Vec<u64>; 2] {
        let blocks = &self.blocks[rank];
        let spans = [blocks.span(0), blocks.span(1)];
        let mut memory = spans.map(|span| vec![u64::MAX; span.max(spans[0] * usize::from(self.of.in_place))]);
        let filled = usize::from(self.is_one(rank));
        for (block, at) in blocks.sides[0].iter().enumerate() {
            for i in 0..at.len() {
                memory[filled][at.start + i] = self.sent(rank, block, i);
            }
        }
        memory
    }

    /// Whether a rank's input lies in its output's memory.
    fn is_one(&self, rank: usize) -> bool {
        let held = [definition::input, definition::output]
            .map(|held| !held(self.of.collective, rank, self.blocks.len()).is_empty());
        self.of.in_place && self.of.collective != Collective::AlltoAllV && held == [true; 2]
    }

    fn wanted(&self, rank: usize, block: usize, i: usize) -> u64 {
        match definition::wanted(self.of.collective, rank, block) {
            Wanted::ReductionOf { block } => {
                let ranks = 0..self.blocks.len();
                ranks.fold(0, |sum, r| sum.wrapping_add(self.sent(r, block, i)))
            }
            Wanted::CopyOf { rank, block } => self.sent(rank, block, i),
        }
    }

    /// Runs it as [`super::Trial::run`] does.
    pub(super) fn run(&self, slots: usize, seed: u64) -> Result<(), String> {
        let mut memory: Vec<[Vec<u64>; 2]> = (0..self.blocks.len()).map(|rank| self.before(rank)).collect();
        self.go(&mut memory, slots, seed)?;
        for (rank, found) in memory.iter().enumerate() {
            let mut wanted = self.before(rank);
            for (block, at) in self.blocks[rank].sides[1].iter().enumerate() {
                for i in 0..at.len() {
                    wanted[1][at.start + i] = self.wanted(rank, block, i);
                }
            }
            if *found != wanted {
                return Err(format!(
                    "rank {rank} with {:?}: {found:x?}, wanted {wanted:x?}",
                    self.blocks[rank]
                ));
            }
        }
        Ok(())
    }

    fn go(&self, memory: &mut [[Vec<u64>; 2]], slots: usize, seed: u64) -> Result<(), String> {
        let schedules = self.of.schedules;
        let world = sim::World::new(schedules.len(), slots, seed);
        let header = Call {
            seq: 3,
            collective: self.of.collective,
            count: 0,
            dtype: DType::Uint64,
            op: Op::Sum,
        };
        let is_one: Vec<bool> = (0..memory.len()).map(|rank| self.is_one(rank)).collect();
        let mut works: Vec<Work<'_>> = Vec::new();
        for (rank, [input, output]) in memory.iter_mut().enumerate() {
            let blocks = &self.blocks[rank];
            let output = Region::of_mut(output);
            works.push(Work {
                schedule: &schedules[rank],
                grains: Grains::Given { blocks, grains: 1 },
                tiling: Tiling::of_pieces(self.of.tile, blocks.longest()),
                copies: self.of.copies,
                channels: Extent::of_all(schedules.iter().map(Schedule::extent)).channels,
                first_lane: seed as usize % CALL_LANES,
                dtype: DType::Uint64,
                op: Op::Sum,
                tree: false,
                scalar: None,
                header: header.signature(),
                input: if is_one[rank] { output } else { Region::of(input) },
                output,
                scratch: Region::empty(),
                streams: false,
                past: false,
                lend: self.of.proof.map(|proof| Lend {
                    proof,
                    rank,
                    in_place: self.of.in_place,
                    read: 0,
                    taken: usize::MAX,
                    paged: 0,
                }),
                helpers: None,
            });
        }
        finish(&world, &works)
    }
}

/// Has the rank's own block lie at one place in both buffers, and nothing over it.
fn lay_in_place(collective: Collective, blocks: &mut Blocks, rank: usize) {
    let [input, output] = &mut blocks.sides;
    let [whole, own] = match collective {
        Collective::AllGatherV | Collective::GatherV { .. } => [output, input],
        _ => [input, output],
    };
    // What is sent may lie one over the other; what is received must not.
    let mut at = 1;
    for block in whole.iter_mut().filter(|block| block.start < block.end) {
        *block = at..at + block.len();
        at = block.end + 1;
    }
    if !own[rank].is_empty() && !whole[rank].is_empty() {
        own[rank] = whole[rank].clone();
    }
}

fn each_trial(mut check: impl FnMut(&Trial<'_>, &str)) {
    for n in (1..=9).chain([16]) {
        let collectives = definition::every([0, n / 2, n - 1]).into_iter();
        for collective in collectives.filter(|collective| collective.has_given_blocks()) {
            for algorithm in fitting(collective) {
                let schedules = schedules(algorithm, collective, n);
                let proof = verify_all(collective, &schedules).unwrap();
                for (most, tile, copies) in
                    [(0, 4, 1), (3, 4, 1), (3, 1, 3), (30, 7, 2), (90, 16, CALL_LANES)]
                {
                    for in_place in [false, true] {
                        let of = super::Trial {
                            collective,
                            schedules: &schedules,
                            count: 100 * n + most, // draws the blocks
                            in_place,
                            tile,
                            copies,
                            proof: Some(&proof),
                        };
                        check(&Trial::of(&of, most), algorithm.name);
                    }
                }
            }
        }
    }
}

#[test]
fn every_algorithm_is_right_on_blocks_of_any_length() {
    let mut cases = 0;
    each_trial(|trial, name| {
        for (slots, seed) in [(0, 9), (0, 10), (1, 11), (1, 12), (2, 13), (4, 14)] {
            trial.run(slots, seed).unwrap_or_else(|why| {
                let (of, n) = (trial.of, trial.blocks.len());
                panic!(
                    "{name} {:?} n={n} tile={} copies={} in_place={} slots={slots} seed={seed}: {why}",
                    of.collective, of.tile, of.copies, of.in_place
                )
            });
            cases += 1;
        }
    });
    println!("counted: {cases} simulated calls of V forms were right");
}

/// A rank counts on another length of a block than the rank that sends it: also on none, or on some where there is none.
#[test]
fn a_length_that_differs_between_two_ranks_is_found() {
    let mut found = 0;
    each_trial(|trial, name| {
        let (n, collective) = (trial.blocks.len(), trial.of.collective);
        let mut random = fastrand::Rng::with_seed(trial.of.count as u64);
        let receives = |rank: usize| !definition::output(collective, rank, n).is_empty();
        let ranks: Vec<usize> = (0..n).filter(|&rank| receives(rank)).collect();
        let to = random.choice(ranks).unwrap();
        let block = random.choice(definition::output(collective, to, n)).unwrap();
        let Wanted::CopyOf { rank: from, .. } = definition::wanted(collective, to, block) else {
            return;
        };
        if !collective.counts_by_pair() || from == to || trial.of.in_place {
            return;
        }
        let mut blocks = trial.blocks.clone();
        // Behind all others.
        let span = blocks[to].span(1);
        let len = blocks[to].sides[1][block].len();
        let other = if len > 0 && random.bool() {
            0
        } else {
            len + random.usize(1..30)
        };
        blocks[to].sides[1][block] = if other == 0 { 0..0 } else { span..span + other };
        let differing = Trial { of: trial.of, blocks };
        let memory = |rank: usize| {
            let blocks = &differing.blocks[rank];
            [0, 1].map(|side| vec![0; blocks.span(side)])
        };
        let mut memory: Vec<_> = (0..n).map(memory).collect();
        let outcome = differing.go(&mut memory, 2, 7).unwrap_err();
        assert!(
            outcome.contains(&format!("rank {to}: Mismatch {{ peer: {from}")),
            "{name} {collective:?} n={n}: {outcome}"
        );
        found += 1;
    });
    assert!(found > 50, "{found}");
}
