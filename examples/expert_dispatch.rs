//! A mixture of experts: each rank is an expert and has tokens, each for one of the experts. Counts are exchanged by
//! all-to-all, then tokens by all-to-all-v: there, through the expert, and back.

use ccl::{Communicator, Result};

mod ranks;

const WIDTH: usize = 16;
const TOKENS: usize = 100;

fn main() -> Result<()> {
    ranks::run(4, dispatch)
}

/// What expert `rank` makes of a token.
fn process(token: &mut [f32], rank: usize) {
    token.iter_mut().for_each(|element| *element *= (rank + 2) as f32);
}

/// Where each block begins if they lie one after the other.
fn place(counts: &[usize]) -> Vec<usize> {
    let begins = counts.iter().scan(0, |end, count| {
        *end += count;
        Some(*end - count)
    });
    begins.collect()
}

fn dispatch(comm: &Communicator) -> Result<()> {
    let (rank, ranks) = (comm.rank(), comm.ranks());
    // Each rank has another number of tokens, and the router says which expert each is for.
    let count = TOKENS + rank;
    let mut tokens = ranks::numbers(rank, count * WIDTH);
    let experts: Vec<usize> = (0..count).map(|token| (token * token + rank) % ranks).collect();

    // How many elements go to each rank, and how many come from it.
    let mut counts = vec![0u64; ranks];
    experts.iter().for_each(|&expert| counts[expert] += WIDTH as u64);
    let mut their_counts = vec![0u64; ranks];
    comm.all_to_all(&counts, &mut their_counts)?;
    let [counts, their_counts] =
        [counts, their_counts].map(|counts| counts.iter().map(|&count| count as usize).collect::<Vec<_>>());
    let (displs, their_displs) = (place(&counts), place(&their_counts));

    // Tokens are sent in the order of their experts: `places` is where each lies.
    let mut next = displs.clone();
    let place_of = |&expert: &usize| {
        next[expert] += WIDTH;
        next[expert] - WIDTH
    };
    let places: Vec<usize> = experts.iter().map(place_of).collect();
    let mut ours = vec![0.0; tokens.len()];
    for (token, &place) in tokens.chunks(WIDTH).zip(&places) {
        ours[place..][..WIDTH].copy_from_slice(token);
    }

    let mut theirs = vec![0.0; their_counts.iter().sum()];
    comm.all_to_all_v(&ours, &counts, &displs, &mut theirs, &their_counts, &their_displs)?;
    theirs.chunks_mut(WIDTH).for_each(|token| process(token, rank));
    let mut back = vec![0.0; ours.len()];
    comm.all_to_all_v(&theirs, &their_counts, &their_displs, &mut back, &counts, &displs)?;

    for ((token, &expert), &place) in tokens.chunks_mut(WIDTH).zip(&experts).zip(&places) {
        process(token, expert);
        assert_eq!(back[place..][..WIDTH], *token, "a token came back wrong");
    }
    comm.barrier()?; // all ranks' tokens are right
    if rank == 0 {
        println!(
            "{ranks} experts: all tokens came back; expert 0 had {}",
            theirs.len() / WIDTH
        );
    }
    Ok(())
}
