//! What the engine runs: a thread, a lane and an edge of each class, and how many lanes of a class share an edge.

use super::fold::Classes;
use super::program::{Op, Programs};

/// Threads that stand for their classes.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) threads: Vec<std::ops::Range<usize>>,
    pub(super) ops: Vec<Op>,
    pub(super) lanes: Vec<Line>,
    /// The edges of all lanes, and how many lanes of the class go over each.
    pub(super) crossings: Vec<(u32, f64)>,
    /// Bytes in a femtosecond.
    pub(super) capacities: Vec<f64>,
}

/// A lane of the model.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) latency: u64,
    pub(super) crossings: std::ops::Range<usize>,
}

impl Model {
    /// `copies` of all threads, each with lanes of its own, do the same at the same moments: one stands for them.
    pub(super) fn new(programs: &Programs, classes: &Classes, capacities: &[f64], copies: f64) -> Model {
        let mut first_lanes = Vec::with_capacity(classes.threads.len());
        let mut lanes = 0;
        for &(thread, _) in &classes.threads {
            first_lanes.push(lanes);
            lanes += programs.threads[thread as usize].lanes.len();
        }
        let class_lane = |lane: u32| {
            let from = programs.lanes[lane as usize].from;
            let slot = lane as usize - programs.threads[from as usize].lanes.start;
            (first_lanes[classes.of_thread[from as usize] as usize] + slot) as u32
        };
        let mut model = Model {
            threads: Vec::with_capacity(classes.threads.len()),
            ops: Vec::new(),
            lanes: Vec::with_capacity(lanes),
            crossings: Vec::new(),
            capacities: classes
                .edges
                .iter()
                .map(|&(edge, _)| capacities[edge as usize] * 1e-15)
                .collect(),
        };
        for (class, &(thread, size)) in classes.threads.iter().enumerate() {
            let thread = &programs.threads[thread as usize];
            let first = model.ops.len();
            model
                .ops
                .extend(programs.ops[thread.ops.clone()].iter().map(|op| match *op {
                    Op::Recv { lane } => Op::Recv {
                        lane: class_lane(lane),
                    },
                    Op::Send { lane, grains } => Op::Send {
                        lane: class_lane(lane),
                        grains,
                    },
                    other => other,
                }));
            model.threads.push(first..model.ops.len());
            for lane in thread.lanes.clone() {
                let first = model.crossings.len();
                for &edge in programs.edges(lane) {
                    let class = classes.of_edge[edge as usize];
                    let share = f64::from(size) / f64::from(classes.edges[class as usize].1) * copies;
                    match model.crossings[first..]
                        .iter_mut()
                        .find(|(known, _)| *known == class)
                    {
                        Some((_, times)) => *times += share,
                        None => model.crossings.push((class, share)),
                    }
                }
                let one = &programs.lanes[lane];
                model.lanes.push(Line {
                    from: class as u32,
                    to: classes.of_thread[one.to as usize],
                    latency: one.latency,
                    crossings: first..model.crossings.len(),
                });
            }
        }
        model
    }
}
