//! A rank that a launcher started: every process is one, there is no parent, and rank 0 shows what is measured.

use super::{
    args::Args,
    complain,
    console::{Console, Trouble},
    explain,
    files::Files,
    measure::Team,
    rank::{Outcome, Session, configs},
    report::Report,
    setup::Setup,
};
use crate::{Communicator, bootstrap::env::Launch, sys::host::usable_cpus, topo::host::Host};
use std::{cell::RefCell, error::Error, path::Path, process::ExitCode};

/// A rank's whole life. Rank 0 alone prints what went well; whoever has a failure says so in a line of its own.
pub(super) fn main(args: Args, launch: &Launch) -> ExitCode {
    let mut host = Host::read(Path::new("/"));
    let mut setup = match Setup::launched(args, &host, launch) {
        Ok(setup) => setup,
        Err(line) => return complain(&line, 2),
    };
    if setup.explain {
        return match explain::text(&setup.job) {
            Ok(text) => super::show(&text, launch.rank == 0),
            Err(error) => complain(&error.to_string(), 1),
        };
    }
    let fail = |error: &(dyn Error + 'static)| match error.downcast_ref() {
        Some(Trouble::Unread) => ExitCode::FAILURE,
        _ => complain(&format!("rank {}: {error}", launch.rank), 1),
    };
    let [measured, control] = configs(&setup.job);
    let joined = Communicator::init_env(&measured).and_then(|comm| {
        Ok((
            comm,
            Team {
                control: Communicator::init_env(&control)?,
            },
        ))
    });
    let (comm, team) = match joined {
        Ok(joined) => joined,
        Err(error) => return fail(&error),
    };
    // The communicators are dropped after the line is printed: with a rank that is silent that takes a while.
    let mut run = || -> Outcome<u64> {
        host.cpus = cores(&team)?;
        setup.note_turns(launch.ranks_here(), &host);
        match launch.rank {
            0 => show(&setup, &host, &comm, &team),
            _ => measure(&setup, &comm, &team, &|_| Ok(())),
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
fn show(setup: &Setup, host: &Host, comm: &Communicator, team: &Team) -> Outcome<u64> {
    // After joining, so that the others are not left waiting if that fails.
    let files = Files::open(setup)?;
    let console = RefCell::new(Console::new(setup, host));
    console.borrow_mut().ready(comm.transport().to_owned())?;
    let measured = measure(setup, comm, team, &|report| {
        if let Report::Row(row) = report {
            console.borrow_mut().row(*row)?;
        }
        Ok(())
    });
    let mut console = console.into_inner();
    console.clear();
    // What each rank counted by itself, and the sums that the rows show.
    Ok(measured?.max(console.finish(files)?))
}

/// Goes through all sizes; says how many elements were wrong on all ranks.
fn measure(
    setup: &Setup,
    comm: &Communicator,
    team: &Team,
    tell: &dyn Fn(Report) -> Outcome<()>,
) -> Outcome<u64> {
    let job = &setup.job;
    let session = Session {
        comm,
        team,
        job,
        tell,
    };
    let here = session.run_all()?;
    // A sum that is itself wrong hides nothing that was found here.
    Ok(team.sum(here)?.max(here))
}

/// How many cores the ranks may use together: launchers often give each its own.
fn cores(team: &Team) -> Outcome<usize> {
    let mut mask = usable_cpus();
    mask.resize(MOST_CORES / 8, 0);
    team.unite(&mut mask)?;
    Ok(mask
        .iter()
        .map(|byte| byte.count_ones() as usize)
        .sum::<usize>()
        .max(1))
}

/// As many as the kernel's smallest mask has.
const MOST_CORES: usize = 1024;
