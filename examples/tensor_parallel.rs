//! Two layers split over the ranks, y = relu(x up) down: each rank has some columns of `up` and the same rows of `down`, so
//! that nothing is exchanged between the two products. Before and after them the rows of x and y are split.

use ccl::{Communicator, Op, Result};

mod ranks;

/// Rows of x that each rank has.
const ROWS: usize = 4;
/// Columns of `up` that each rank has.
const COLUMNS: usize = 8;
/// Columns of x and of y.
const INPUTS: usize = 16;
const OUTPUTS: usize = 16;

fn main() -> Result<()> {
    ranks::run(4, layers)
}

fn layers(comm: &Communicator) -> Result<()> {
    let (rank, ranks) = (comm.rank(), comm.ranks());
    let (tokens, hidden) = (ROWS * ranks, COLUMNS * ranks);

    // The whole model, and this rank's parts of it.
    let (x, up) = (
        ranks::numbers(0, tokens * INPUTS),
        ranks::numbers(1, INPUTS * hidden),
    );
    let down = ranks::numbers(2, hidden * OUTPUTS);
    let own_x = part(&x, rank, ROWS * INPUTS);
    let own_up: Vec<f32> = up
        .chunks(hidden)
        .flat_map(|row| part(row, rank, COLUMNS))
        .copied()
        .collect();
    let own_down = part(&down, rank, COLUMNS * OUTPUTS);

    // All rows through this rank's part of the layers; what the ranks have then adds up to y, whose rows are split again.
    let (mut all_x, mut own_y) = (vec![0.0; tokens * INPUTS], vec![0.0; ROWS * OUTPUTS]);
    comm.all_gather(own_x, &mut all_x)?;
    let inner = relu(multiply(&all_x, &own_up, INPUTS, COLUMNS));
    let mut y = multiply(&inner, own_down, COLUMNS, OUTPUTS);
    comm.reduce_scatter(&y, &mut own_y, Op::Sum)?;
    // Where every rank goes on with all rows, it is an all-reduce instead.
    comm.all_reduce_in_place(&mut y, Op::Sum)?;

    let whole_y = multiply(&relu(multiply(&x, &up, INPUTS, hidden)), &down, hidden, OUTPUTS);
    let mut error = [
        ranks::squared_error(&own_y, part(&whole_y, rank, ROWS * OUTPUTS)),
        ranks::squared_error(&y, &whole_y),
    ];
    comm.all_reduce_in_place(&mut error, Op::Max)?;
    assert!(
        error.iter().all(|&error| error < 1e-8 * ranks as f32),
        "{error:?}"
    );
    if rank == 0 {
        println!("{ranks} ranks, {hidden} hidden columns: squared errors to the unsplit layers {error:?}");
    }
    Ok(())
}

/// Part `index` of `whole`, with parts of `len` elements.
fn part(whole: &[f32], index: usize, len: usize) -> &[f32] {
    &whole[index * len..][..len]
}

/// `a b`, of any number of rows × `inner` and `inner` × `columns`.
fn multiply(a: &[f32], b: &[f32], inner: usize, columns: usize) -> Vec<f32> {
    let element = |row: &[f32], j: usize| (0..inner).map(|k| row[k] * b[k * columns + j]).sum();
    a.chunks(inner)
        .flat_map(|row| (0..columns).map(move |j| element(row, j)))
        .collect()
}

fn relu(mut matrix: Vec<f32>) -> Vec<f32> {
    matrix.iter_mut().for_each(|element| *element = element.max(0.0));
    matrix
}
