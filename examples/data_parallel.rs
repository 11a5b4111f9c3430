//! Training by data: every rank has the same weights and samples of its own. While a rank computes the gradients of one
//! bucket of weights, those of the buckets before it are averaged over the ranks.

use ccl::{Communicator, Op, Pending, Result, Stream};

mod ranks;

const FEATURES: usize = 32;
const SAMPLES: usize = 64;
const BUCKET: usize = 8;
const STEPS: usize = 60;
const RATE: f32 = 0.3;

struct Sample {
    input: Vec<f32>,
    target: f32,
}

fn main() -> Result<()> {
    ranks::run(4, train)
}

fn train(comm: &Communicator) -> Result<()> {
    let samples = samples_of(comm.rank());
    let stream = Stream::new();
    // All begin with the weights of rank 0.
    let mut weights = vec![comm.rank() as f32; FEATURES];
    comm.broadcast_in_place(&mut weights, 0)?;
    let losses = (0..STEPS)
        .map(|_| step(comm, &stream, &samples, &mut weights))
        .collect::<Result<Vec<f32>>>()?;

    let (mut lowest, mut highest) = (weights.clone(), weights);
    comm.all_reduce_in_place(&mut lowest, Op::Min)?;
    comm.all_reduce_in_place(&mut highest, Op::Max)?;
    assert_eq!(lowest, highest, "the ranks' weights differ");
    let (first, last) = (losses[0], losses[STEPS - 1]);
    assert!(last < first / 100.0, "the loss did not fall");
    if comm.rank() == 0 {
        println!(
            "{} ranks, {STEPS} steps: the loss fell from {first} to {last}",
            comm.ranks()
        );
    }
    Ok(())
}

/// What is to be learned: the weight of feature f is f.
fn samples_of(rank: usize) -> Vec<Sample> {
    let sample = |s| {
        let input = ranks::numbers(rank * SAMPLES + s, FEATURES);
        let target = input.iter().enumerate().map(|(f, x)| f as f32 * x).sum();
        Sample { input, target }
    };
    (0..SAMPLES).map(sample).collect()
}

/// One step on all ranks; returns the loss before it, averaged over all samples.
fn step(comm: &Communicator, stream: &Stream, samples: &[Sample], weights: &mut [f32]) -> Result<f32> {
    let error = |sample: &Sample| dot(&sample.input, weights) - sample.target;
    let errors: Vec<f32> = samples.iter().map(error).collect();
    let loss = dot(&errors, &errors) / SAMPLES as f32;
    let loss = comm.begin().on(stream).all_reduce(vec![loss], Op::Avg)?;

    let gradient = |f: usize| {
        let products = samples
            .iter()
            .zip(&errors)
            .map(|(sample, error)| error * sample.input[f]);
        2.0 * products.sum::<f32>() / SAMPLES as f32
    };
    let mut buckets: Vec<Pending<Vec<f32>>> = Vec::new();
    for begin in (0..FEATURES).step_by(BUCKET) {
        let bucket = (begin..begin + BUCKET).map(gradient).collect();
        // It returns at once, and goes on while the next bucket is computed.
        buckets.push(comm.begin().on(stream).all_reduce(bucket, Op::Avg)?);
    }
    for (weights, bucket) in weights.chunks_mut(BUCKET).zip(buckets) {
        for (weight, gradient) in weights.iter_mut().zip(bucket.wait()?) {
            *weight -= RATE * gradient;
        }
    }
    Ok(loss.wait()?[0])
}

fn dot(one: &[f32], other: &[f32]) -> f32 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}
