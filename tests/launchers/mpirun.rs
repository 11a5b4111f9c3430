//! `mpirun` of Open MPI and MPICH, on one host and on several.

use super::{
    CCL_PERF, HOSTS, SWEEP, bounded, check_table, check_that_rank_1_was_lost, command, one_is_killed, script,
    text, there_are,
};
use std::{env, fs, process::Output};

const OPEN_MPI: (&str, &str) = ("mpirun.openmpi", "openmpi-bin");
const MPICH: (&str, &str) = ("mpirun.mpich", "mpich");

/// Runs `mpirun` with ranks of `ccl-perf`, unless it is not there.
fn mpirun(launcher: (&str, &str), line: &str) -> Option<Output> {
    there_are(&[launcher]).then(|| {
        let mut mpirun = bounded(launcher.0, &format!("{line} {CCL_PERF} allreduce {SWEEP}"));
        mpirun.output().unwrap()
    })
}

#[test]
fn under_open_mpi() {
    if let Some(output) = mpirun(OPEN_MPI, "--oversubscribe -n 4") {
        check_table(&output, "# ranks      4, started by Open MPI", "shm");
    }
}

#[test]
fn under_mpich() {
    if let Some(output) = mpirun(MPICH, "-n 4") {
        check_table(&output, "# ranks      4, started by MPICH", "shm");
    }
}

/// A shell is the parent of each rank, so that they have only the launcher itself in common.
#[test]
fn under_mpich_behind_a_wrapper() {
    let folder = tempfile::tempdir().unwrap();
    let wrapper = folder.path().join("wrapper");
    fs::write(&wrapper, "\"$@\"\nexit $?\n").unwrap();
    if let Some(output) = mpirun(MPICH, &format!("-n 3 sh {}", wrapper.display())) {
        check_table(&output, "# ranks      3, started by MPICH", "shm");
    }
}

/// A line that runs `mpirun` on a head, with the ranks of `program` on two hosts, whose output is `None` where there are
/// none. It starts them by what stands in for ssh.
fn on_two_hosts(launcher: (&str, &str), program: &str, settings: &[(&str, &str)]) -> Option<Output> {
    there_are(&[HOSTS[0], HOSTS[1], launcher]).then_some(())?;
    let options = match launcher == OPEN_MPI {
        true => "--mca plm_rsh_agent $AGENT --host host0:2,host1:2 -x CCL_SECRET",
        false => "-launcher ssh -launcher-exec $AGENT -hosts host0:2,host1:2",
    };
    let mut head = script("hosts", "--hosts 2 --once bash -c")?;
    head.arg(format!("{} {options} -n 4 {program}", launcher.0));
    head.envs(settings.iter().copied());
    Some(head.output().unwrap())
}

/// Without what MPICH's process manager says of a host's ranks: others that speak PMI say nothing of them.
const AS_FLUX: &str = "env -u MPI_LOCALRANKID -u MPI_LOCALNRANKS";

#[test]
fn where_nothing_is_said_of_hosts_it_is_carried_where_rank_0_is() {
    if let Some(output) = mpirun(MPICH, &format!("-n 3 {AS_FLUX}")) {
        check_table(&output, "# ranks      3, started by MPICH", "shm");
    }
}

/// No secret, no address: the launcher carries both.
#[test]
fn between_hosts_nothing_is_to_be_set() {
    for (launcher, name, wrapper) in [
        (OPEN_MPI, "Open MPI", ""),
        (MPICH, "MPICH (PMI)", ""),
        (MPICH, "MPICH (PMI)", AS_FLUX),
    ] {
        let program = format!("{wrapper} {CCL_PERF} allreduce {SWEEP}");
        let Some(output) = on_two_hosts(launcher, &program, &[]) else {
            return;
        };
        check_table(&output, &format!("# ranks      4, started by {name}"), "shm+tcp");
    }
}

/// A secret of the user's is heeded, too: by all ranks or by none.
#[test]
fn between_hosts_a_secret_is_given_to_all_ranks_or_to_none() {
    for launcher in [OPEN_MPI, MPICH] {
        let program = format!("{CCL_PERF} allreduce {SWEEP}");
        let secret = [("CCL_SECRET", "which nobody can guess")];
        let Some(output) = on_two_hosts(launcher, &program, &secret) else {
            return;
        };
        check_table(&output, "# ranks      4, started by", "shm+tcp");
        // What a launcher has not forwarded when it ends the ranks may be lost, so that each writes what it says into a file. Rank 0
        // waits for the others in vain.
        let folder = tempfile::tempdir().unwrap();
        let program = format!(
            "sh -c 'rank=${{PMIX_RANK:-$PMI_RANK}}; patience=60; \
             test $rank != 0 || {{ export CCL_SECRET=0123456789abcdef; patience=20; }}; \
             exec {CCL_PERF} allreduce --timeout $patience 2>{}/$rank'",
            folder.path().display()
        );
        let output = on_two_hosts(launcher, &program, &[]).unwrap();
        let ranks =
            (0..4).map(|rank| fs::read_to_string(folder.path().join(rank.to_string())).unwrap_or_default());
        let err = ranks.chain([text(&output.stderr)]).collect::<Vec<_>>().join("\n");
        assert!(!output.status.success(), "{err}");
        let said = "rank 0 has a secret (CCL_SECRET_FILE or CCL_SECRET) that this one has not";
        assert!(err.contains(said), "{err}");
    }
}

/// The launcher may end the others before they can say whom they lost.
#[test]
fn between_hosts_a_rank_that_dies_ends_all() {
    for launcher in [OPEN_MPI, MPICH] {
        let program = one_is_killed("test ${PMIX_RANK:-$PMI_RANK} = 1");
        let Some(output) = on_two_hosts(launcher, &format!("sh -c '{program}'"), &[]) else {
            return;
        };
        check_that_rank_1_was_lost(&output, &[]);
    }
}

/// Where the launcher does not carry, ranks say why, and what to set.
#[test]
fn a_launcher_that_cannot_carry_is_named() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("libpmix.so.2"), "no library").unwrap();
    let no_library = format!("LD_LIBRARY_PATH={}", folder.path().display());
    let no_server =
        "PMIX_SERVER_URI2=x PMIX_SERVER_URI21=x PMIX_SERVER_URI3=x PMIX_SERVER_URI4=x PMIX_SERVER_URI41=x";
    for (broken, why) in [
        (no_library.as_str(), "it cannot be loaded: "),
        (no_server, "PMIx_Init failed: UNREACHABLE"),
    ] {
        let Some(output) = mpirun(OPEN_MPI, &format!("{} {broken}", ALONE[0].1)) else {
            return;
        };
        let err = text(&output.stderr);
        assert!(!output.status.success(), "{err}");
        for said in ["could not by PMIx: ", why, "export CCL_SECRET_FILE="] {
            assert!(err.contains(said), "{said}: {err}");
        }
    }
}

/// What makes a rank of either launcher believe that it is alone on its host.
const ALONE: [(&str, &str); 2] = [
    (
        OPEN_MPI.0,
        "--oversubscribe -n 2 env OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0",
    ),
    (MPICH.0, "-n 2 env MPI_LOCALNRANKS=1 MPI_LOCALRANKID=0"),
];

#[test]
fn a_carrier_is_not_waited_for_longer_than_init_may_take() {
    if !there_are(&[OPEN_MPI, MPICH]) {
        return;
    }
    for (mpirun, alone) in ALONE {
        let rank =
            format!("test ${{PMIX_RANK:-$PMI_RANK}} = 0 || sleep 20; exec {CCL_PERF} allreduce --timeout 3");
        let mut mpirun = bounded(mpirun, alone);
        let output = mpirun.args(["sh", "-c", &rank]).output().unwrap();
        let err = text(&output.stderr);
        assert!(!output.status.success(), "{err}");
        let said = "rank 0: init timed out after 3.0 s: not all of the 2 ranks came to hear by PMI";
        assert!(err.contains(said), "{err}");
    }
}

/// Before MPI, with it and after it.
#[test]
fn programs_may_have_an_mpi_of_their_own() {
    if !there_are(&[OPEN_MPI, MPICH, ("cc", "gcc")]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = env!("CARGO_MANIFEST_DIR");
    // Where cargo puts libccl.so for a test.
    let test = env::current_exe().unwrap();
    let libraries = test.parent().unwrap().display();
    for ((mpirun, alone), library) in ALONE.into_iter().zip(["libmpi.so.40", "libmpich.so.12"]) {
        let program = folder.path().join(mpirun);
        let line = format!(
            "{root}/tests/launchers/with_mpi.c -o {} -I{root}/include -L{libraries} -Wl,-rpath,{libraries} -lccl -l:{library}",
            program.display()
        );
        let compiled = command("cc", &line).output().unwrap();
        assert!(compiled.status.success(), "{}", text(&compiled.stderr));
        for steps in ["cif", "icfc", "cicf", "cc"] {
            let line = format!("{alone} CCL_TIMEOUT=60 {} {steps}", program.display());
            let output = bounded(mpirun, &line).output().unwrap();
            let (out, err) = (text(&output.stdout), text(&output.stderr));
            if mpirun == OPEN_MPI.0 {
                assert!(output.status.success(), "{steps}: {err}");
                let calls = steps.matches('c').count();
                assert_eq!(out.matches("the sum is 2").count(), 2 * calls, "{steps}: {out}");
            } else {
                let said = "this program has an MPI of its own (libmpich.so.12";
                assert!(!output.status.success() && err.contains(said), "{steps}: {err}");
            }
        }
    }
}

/// Variables of an outer launcher are there, too: the inner one is believed, whichever it is.
#[test]
fn of_launchers_in_each_other_the_inner_one_counts() {
    let launchers = [(OPEN_MPI, "Open MPI"), (MPICH, "MPICH (PMI)")];
    if !there_are(&launchers.map(|(launcher, _)| launcher)) {
        return;
    }
    let line = format!("-n 3 {CCL_PERF} allreduce {SWEEP}");
    for (outer, inner, name) in [(OPEN_MPI, MPICH, "MPICH (PMI)"), (MPICH, OPEN_MPI, "Open MPI")] {
        let inner = match inner == OPEN_MPI {
            true => format!("{} --oversubscribe {line}", inner.0),
            false => format!("{} {line}", inner.0),
        };
        let output = bounded(outer.0, "-n 1 bash -c").arg(inner).output().unwrap();
        check_table(&output, &format!("# ranks      3, started by {name}"), "shm");
        assert_eq!(text(&output.stderr), "");
    }
}
