//! A rank that a launcher started: every process is one, there is no parent, and rank 0 shows what is measured.

use super::{
    args::Args,
    complain,
    console::{Console, Trouble},
    explain,
    files::Files,
    footprint::{Footprint, Footprints},
    measure::Team,
    rank::{Outcome, Session, configs},
    report::{Job, Report},
    setup::Setup,
};
use crate::{
    Communicator,
    bootstrap::env::Launch,
    topo::{
        host::Host,
        share::{Allowance, share},
    },
};
use serde_json::{Map, Value};
use std::{
    cell::RefCell,
    error::Error,
    path::Path,
    process::ExitCode,
    time::{Duration, Instant},
};

/// A rank's whole life. Rank 0 alone prints what went well; whoever has a failure says so in a line of its own.
pub(super) fn main(args: Args, launch: &Launch) -> ExitCode {
    let mut host = Host::read(Path::new("/"));
    let mut setup = match Setup::launched(args, &host, launch) {
        Ok(setup) => setup,
        Err(line) => return complain(&line, 2),
    };
    if setup.explain {
        if launch.ranks > 1 {
            return complain(
                "--explain tells of ranks that ccl-perf starts: under a launcher CCL_EXPLAIN=1 has each plan told as it is made",
                2,
            );
        }
        return match explain::text(&setup.job) {
            Ok(text) => super::show(&text, launch.rank == 0),
            Err(error) => complain(&error.to_string(), 1),
        };
    }
    let fail = |error: &(dyn Error + 'static)| match error.downcast_ref() {
        Some(Trouble::Unread) => ExitCode::FAILURE,
        _ => complain(&format!("rank {}: {error}", launch.rank), 1),
    };
    let joined =
        configs(&setup.job, launch.local_rank.unwrap_or(launch.rank)).and_then(|[measured, control]| {
            let began = Instant::now();
            let comm = Communicator::init_env(&measured)?;
            let init = began.elapsed();
            let control = Communicator::init_env(&control)?;
            Ok(((comm, init), Team { control }))
        });
    let ((comm, init), team) = match joined {
        Ok(joined) => joined,
        Err(error) => return fail(&error),
    };
    // The communicators are dropped after the line is printed: with a rank that is silent that takes a while.
    let mut run = || -> Outcome<u64> {
        compare(&setup.job, &team)?;
        (setup.ranks_here, host.cpus) = here(&team)?;
        setup.note_turns(&host);
        match launch.rank {
            0 => show(&setup, &host, (&comm, init), &team),
            _ => Ok(measure(&setup, (&comm, init), &team, &|_| Ok(()))?.0),
        }
    };
    match run() {
        Ok(0) => ExitCode::SUCCESS,
        Ok(wrong) if launch.rank == 0 => complain(&super::wrong_elements(wrong, &setup.job), 1),
        Ok(_) => ExitCode::FAILURE,
        Err(error) => fail(&*error),
    }
}

/// Rank 0's part: measures and shows.
fn show(setup: &Setup, host: &Host, comm: (&Communicator, Duration), team: &Team) -> Outcome<u64> {
    // After joining, so that the others are not left waiting if that fails.
    let files = Files::open(setup)?;
    let console = RefCell::new(Console::new(setup, host));
    console.borrow_mut().ready(comm.0.transport().to_owned())?;
    let measured = measure(setup, comm, team, &|report| {
        if let Report::Row(row) = report {
            console.borrow_mut().row(*row)?;
        }
        Ok(())
    });
    let mut console = console.into_inner();
    console.clear();
    // What each rank counted by itself, and the sums that the rows show.
    let (wrong, footprints) = measured?;
    Ok(wrong.max(console.finish(files, Some(footprints))?))
}

/// Goes through all sizes; says how many elements were wrong on all ranks, and what these took beside.
fn measure(
    setup: &Setup,
    (comm, init): (&Communicator, Duration),
    team: &Team,
    tell: &dyn Fn(Report) -> Outcome<()>,
) -> Outcome<(u64, Footprints)> {
    let job = &setup.job;
    let session = Session {
        comm,
        team,
        job,
        tell,
    };
    let here = session.run_all()?;
    let (mut sums, mut most) = ([0; 3], Footprint::now(init, 1).numbers());
    for (sum, &number) in sums.iter_mut().zip(&most) {
        *sum = team.sum(number)? / comm.ranks() as u64;
    }
    team.max(&mut most)?;
    let [mean, most] = [sums, most].map(Footprint::of);
    // A sum that is itself wrong hides nothing that was found here.
    Ok((team.sum(here)?.max(here), Footprints { mean, most }))
}

/// Finds that ranks were started with other options than rank 0.
fn compare(job: &Job, team: &Team) -> Outcome<()> {
    let (comm, text) = (&team.control, serde_json::to_vec(job)?);
    let mut length = [text.len() as u64];
    comm.broadcast_in_place(&mut length, 0)?;
    let mut first = text.clone();
    first.resize(usize::try_from(length[0])?, 0);
    comm.broadcast_in_place(&mut first, 0)?;
    let [ours, theirs]: [Map<String, Value>; 2] =
        [serde_json::from_slice(&text)?, serde_json::from_slice(&first)?];
    let differ = ours
        .iter()
        .find(|(name, value)| theirs.get(*name) != Some(*value));
    let mut who = [differ.map_or(0, |_| comm.rank() as u64 + 1)];
    team.max(&mut who)?;
    match (differ, who[0]) {
        (Some((name, value)), _) => Err(format!(
            "it was started with other options than rank 0: {name} is {value} here and {} there; give all ranks the same",
            theirs.get(name).unwrap_or(&Value::Null)
        )
        .into()),
        (None, 0) => Ok(()),
        (None, who) => Err(format!("rank {} was started with other options", who - 1).into()),
    }
}

/// How many ranks this host has, and how many cores they may use together: launchers often give each its own.
fn here(team: &Team) -> Outcome<(usize, usize)> {
    let comm = &team.control;
    let mut own = serde_json::to_vec(&Allowance::here())?;
    let mut longest = [own.len() as u64];
    team.max(&mut longest)?;
    let longest = usize::try_from(longest[0])?;
    own.resize(longest, b' ');
    let mut all = vec![0; longest * comm.ranks()];
    comm.all_gather(&own, &mut all)?;
    let of_rank = |rank: usize| serde_json::from_slice(&all[rank * longest..][..longest]);
    let allowances: Vec<Allowance> =
        (comm.ranks_here().into_iter().map(of_rank)).collect::<Result<_, _>>()?;
    let cores = share(&allowances.iter().collect::<Vec<_>>()).cores;
    Ok((allowances.len(), cores))
}
