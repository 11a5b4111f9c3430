//! What can be seen without running a schedule: that it agrees with the others and that each step makes sense.

use super::flaw::{At, Flaw, Kind};
use super::program::Program;
use crate::plan::definition;
use crate::plan::schedule::{Buffer, DEPTH, How, Item, Schedule, Slice, Source, Step};
use crate::types::Collective;

/// All ranks cut the vector alike, and there is something to cut.
pub(super) fn agrees(rank: usize, schedule: &Schedule, ranks: usize, first: &Schedule) -> Result<(), Flaw> {
    let pairs = [
        ("ranks", schedule.ranks, ranks as u32),
        ("blocks", schedule.blocks, first.blocks.max(1)),
        ("grains in a block", schedule.grains, first.grains.max(1)),
    ];
    match pairs.into_iter().find(|(_, got, want)| got != want) {
        None => Ok(()),
        Some((what, got, want)) => Err(Flaw {
            rank,
            at: None,
            grain: None,
            kind: Kind::Disagrees { what, got, want },
        }),
    }
}

/// Repeats nest no deeper than there are loop variables.
pub(super) fn nests(rank: usize, channel: usize, items: &[Item]) -> Result<(), Flaw> {
    fn depth(items: &[Item]) -> usize {
        let of = |item: &Item| match item {
            Item::Step(_) => 0,
            Item::Repeat { items, .. } => 1 + depth(items),
        };
        items.iter().map(of).max().unwrap_or(0)
    }
    match items
        .iter()
        .position(|item| depth(std::slice::from_ref(item)) > DEPTH)
    {
        None => Ok(()),
        Some(item) => Err(flaw(rank, channel, &[item as u32], Kind::TooDeep)),
    }
}

/// Every step of a channel makes sense by itself.
pub(super) fn steps(
    collective: Collective,
    rank: usize,
    channel: usize,
    schedule: &Schedule,
    program: &Program<'_>,
) -> Result<(), Flaw> {
    let has_input = !definition::input(collective, rank, schedule.blocks as usize).is_empty();
    for (_, step, path) in program.steps() {
        let checks = [
            sources(step, has_input),
            slices(step, schedule),
            after(step, channel, schedule),
        ];
        if let Some(kind) = checks.into_iter().find_map(Result::err) {
            return Err(flaw(rank, channel, path, kind));
        }
    }
    Ok(())
}

fn sources(step: &Step, has_input: bool) -> Result<(), Kind> {
    let count = step.sources.len();
    if count == 0 || (step.how == How::Copy && count > 1) {
        return Err(Kind::SourceCount { how: step.how, count });
    }
    let reads_input = step
        .sources
        .iter()
        .any(|source| matches!(source, Source::Slice(slice) if slice.buffer == Buffer::Input));
    if reads_input && !has_input {
        return Err(Kind::ReadsNoInput);
    }
    Ok(())
}

fn slices(step: &Step, schedule: &Schedule) -> Result<(), Kind> {
    let want = step.shape().map_or(0, Slice::grains);
    if want == 0 {
        return Err(Kind::NoSlice);
    }
    if let Some(slice) = step.slices().find(|slice| slice.grains() != want) {
        let got = slice.grains();
        return Err(Kind::UnevenSlices { got, want });
    }
    if step.stores.iter().any(|slice| slice.buffer == Buffer::Input) {
        return Err(Kind::StoresInput);
    }
    match step.slices().find_map(|slice| outside(slice, schedule)) {
        None => Ok(()),
        Some(position) => Err(Kind::OutsideScratch {
            position,
            scratch: schedule.scratch,
        }),
    }
}

/// A position of a slice of scratch memory that is not in it. One that moves with a loop goes round and is inside as
/// long as there is any; and the runs of one that lies still go round where that keeps grains as long as the blocks'.
fn outside(slice: &Slice, schedule: &Schedule) -> Option<i64> {
    if slice.buffer != Buffer::Scratch {
        return None;
    }
    let scratch = schedule.scratch as usize;
    let (first, inside) = (slice.first.base, 0..scratch as i64);
    let moves = slice.first.step.iter().any(|&step| step != 0);
    if moves && scratch > 0 {
        return None;
    }
    let goes_round = scratch.is_multiple_of(schedule.total_grains()) && slice.grains() <= scratch;
    if goes_round && inside.contains(&first) {
        return None;
    }
    let (run, last_rep) = (i64::from(slice.run), (i64::from(slice.reps) - 1) * slice.stride);
    let (low, high) = (first + last_rep.min(0), first + last_rep.max(0) + run - 1);
    [low, high].into_iter().find(|at| !inside.contains(at))
}

fn after(step: &Step, own: usize, schedule: &Schedule) -> Result<(), Kind> {
    let Some((channel, item)) = step.after else {
        return Ok(());
    };
    let items = schedule.channels.get(channel as usize).map_or(0, Vec::len);
    if channel as usize == own || item as usize >= items {
        return Err(Kind::BadAfter { channel, item });
    }
    Ok(())
}

fn flaw(rank: usize, channel: usize, path: &[u32], kind: Kind) -> Flaw {
    let at = At {
        channel: channel as u32,
        item: path.into(),
        turns: Default::default(),
    };
    Flaw {
        rank,
        at: Some(Box::new(at)),
        grain: None,
        kind,
    }
}
