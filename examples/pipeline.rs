//! A pipeline: each rank is a stage, one layer of the model. Activations of small batches go forward from stage to stage and
//! gradients backward; once the pipeline is full, a stage does one of each in turn ("1F1B").

use ccl::{Communicator, Op, Result};

mod ranks;

const WIDTH: usize = 1000;
const BATCHES: usize = 8;

fn main() -> Result<()> {
    ranks::run(4, |comm| check(comm, &train(comm, &weights_of(comm.rank()))?))
}

/// A layer multiplies element by element with its weights.
fn weights_of(stage: usize) -> Vec<f32> {
    let numbers = ranks::numbers(stage, WIDTH);
    numbers.iter().map(|number| 1.0 + number / 10.0).collect()
}

fn sample(batch: usize) -> Vec<f32> {
    ranks::numbers(1000 + batch, WIDTH)
}

fn times(one: &[f32], other: &[f32]) -> Vec<f32> {
    one.iter().zip(other).map(|(a, b)| a * b).collect()
}

fn add(sums: &mut [f32], numbers: &[f32]) {
    sums.iter_mut()
        .zip(numbers)
        .for_each(|(sum, number)| *sum += number);
}

/// The gradients of this stage's weights, of all batches.
fn train(comm: &Communicator, weights: &[f32]) -> Result<Vec<f32>> {
    let previous = comm.rank().checked_sub(1);
    let next = Some(comm.rank() + 1).filter(|&next| next < comm.ranks());
    // Forward passes before the first backward one.
    let ahead = BATCHES.min(comm.ranks() - comm.rank() - 1);
    // Activations before and after this layer, the loss's gradients after and before it, and those of its weights.
    let mut inputs: Vec<Vec<f32>> = (0..BATCHES).map(sample).collect();
    let (mut outputs, mut before);
    let (mut after, mut gradients) = (vec![0.0; WIDTH], vec![0.0; WIDTH]);

    for input in &mut inputs[..ahead] {
        exchange(comm, previous, None, Some(input))?;
        outputs = times(input, weights);
        exchange(comm, next, Some(&outputs), None)?;
    }
    exchange(comm, previous, None, inputs.get_mut(ahead))?;
    for batch in ahead..BATCHES {
        outputs = times(&inputs[batch], weights);
        exchange(comm, next, Some(&outputs), Some(&mut after))?;
        if next.is_none() {
            after = outputs; // the loss is half the sum of the squares of what the last stage puts out
        }
        add(&mut gradients, &times(&after, &inputs[batch - ahead]));
        before = times(&after, weights);
        exchange(comm, previous, Some(&before), inputs.get_mut(batch + 1))?;
    }
    for input in &inputs[BATCHES - ahead..] {
        exchange(comm, next, None, Some(&mut after))?;
        add(&mut gradients, &times(&after, input));
        before = times(&after, weights);
        exchange(comm, previous, Some(&before), None)?;
    }
    Ok(gradients)
}

/// Sends and receives at once what there is; nothing where there is no such stage.
fn exchange(
    comm: &Communicator,
    stage: Option<usize>,
    sent: Option<&Vec<f32>>,
    received: Option<&mut Vec<f32>>,
) -> Result<()> {
    let Some(stage) = stage else { return Ok(()) };
    comm.scope(|scope| {
        sent.map_or(Ok(()), |sent| scope.send(sent, stage))?;
        received.map_or(Ok(()), |received| scope.recv(received, stage))
    })
}

/// Compares with the gradients of the whole model, which are the output's, that is itself, times what the other stages do.
fn check(comm: &Communicator, gradients: &[f32]) -> Result<()> {
    let (rank, ranks) = (comm.rank(), comm.ranks());
    let product = |stages: &mut dyn Iterator<Item = usize>| {
        stages.fold(vec![1.0; WIDTH], |all, stage| times(&all, &weights_of(stage)))
    };
    let all = product(&mut (0..ranks));
    let others = product(&mut (0..ranks).filter(|&stage| stage != rank));
    let mut wanted = vec![0.0; WIDTH];
    for batch in (0..BATCHES).map(sample) {
        add(&mut wanted, &times(&times(&batch, &all), &times(&batch, &others)));
    }
    let mut error = [ranks::squared_error(gradients, &wanted)];
    comm.all_reduce_in_place(&mut error, Op::Max)?;
    let [error] = error;
    assert!(
        error < 1e-6,
        "the gradients differ from those of the whole model: {error:e}"
    );
    if rank == 0 {
        println!("{ranks} stages, {BATCHES} batches: squared error to the whole model's gradients {error:e}");
    }
    Ok(())
}
