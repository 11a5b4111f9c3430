//! [`Communicator::init_env`]: joining by what a launcher says.

use super::{Communicator, Config, config::Deadlines};
use crate::{
    bootstrap::env::{self, Launch, Turn},
    log,
    types::Result,
};

impl Communicator {
    /// Joins the communicator of all ranks that a launcher started, with the rank that it gave to this process.
    /// Blocks until all have called this. Each further call makes another communicator of the same ranks: all ranks
    /// make the same calls of this function in the same order, and a call counts also where it fails.
    ///
    /// # Who is in it
    ///
    /// The first of these whose variables are set says the rank and the number of ranks; of the launchers that run in each other the one
    /// whose process is the nearest ancestor of this one:
    ///
    /// | launcher | rank, ranks | on this host | the job |
    /// | --- | --- | --- | --- |
    /// | torchrun, or by hand | `RANK`, `WORLD_SIZE` | `LOCAL_RANK`, `LOCAL_WORLD_SIZE` | `TORCHELASTIC_RUN_ID`; on one host `TORCHELASTIC_RESTART_COUNT` |
    /// | Open MPI | `OMPI_COMM_WORLD_RANK`, `OMPI_COMM_WORLD_SIZE` | `OMPI_COMM_WORLD_LOCAL_RANK`, `OMPI_COMM_WORLD_LOCAL_SIZE` | `PMIX_NAMESPACE` |
    /// | MPICH, and who speaks PMI as it does (Flux, HPE's PALS) | `PMI_RANK`, `PMI_SIZE` | `MPI_LOCALRANKID`, `MPI_LOCALNRANKS`; `PMI_LOCAL_RANK`, `PMI_LOCAL_SIZE`; `FLUX_JOB_NNODES` | its process on this host |
    /// | Slurm (in a step) | `SLURM_PROCID`, `SLURM_STEP_NUM_TASKS` or `SLURM_NTASKS` | `SLURM_LOCALID`, `SLURM_STEP_TASKS_PER_NODE` | `SLURM_JOB_ID`, `SLURM_STEP_ID` |
    /// | Kubernetes (indexed Job) | `JOB_COMPLETION_INDEX`, `WORLD_SIZE` | a pod is a host | |
    ///
    /// `MASTER_ADDR` and `MASTER_PORT`, and `CCL_MASTER_ADDR` and `CCL_MASTER_PORT` that override them, are part of
    /// what tells a job from others, too: where set, the same on all ranks. Jobs that one user starts by hand on one
    /// host at the same time need each a `MASTER_PORT` of its own.
    ///
    /// # On one host
    ///
    /// That is where all ranks are that the launcher counts, or, when it does not say how many ranks a host has, when
    /// `MASTER_ADDR` is not set, and nothing carries it, or this host's (`localhost`, 127.0.0.1). No port and no secret are needed: the ranks
    /// meet at a Unix socket, and the kernel says that they belong to the same user.
    ///
    /// # On several hosts
    ///
    /// Where the launcher can, it carries to all ranks where rank 0 listens, and a secret: Open MPI and `srun --mpi=pmix` by
    /// PMIx, whose library is loaded for it; MPICH and `srun --mpi=pmi2` by PMI-1, but not in a program that has loaded an
    /// MPI, to which the descriptor of PMI belongs. That is done once in a process, and only where neither `CCL_MASTER_ADDR`
    /// nor `CCL_MASTER_PORT` is set. Kubernetes may be late to name rank 0's pod: the ranks wait.
    ///
    /// Else rank 0 listens on `CCL_MASTER_PORT` of `CCL_MASTER_ADDR`; by default the port after `MASTER_PORT` (which
    /// torchrun's store has) of `MASTER_ADDR`, under Slurm a port made of the job's numbers on the step's first host.
    /// The ranks know each other by a secret, which is needed there, and elsewhere joined to the one that is carried if all
    /// ranks have it: the content of the file `CCL_SECRET_FILE` (16 bytes or more, yours or
    /// root's, nothing for others), or `CCL_SECRET`, which the first call takes out of the environment (no other
    /// thread may meanwhile change environment variables but through the standard library). `CCL_INSECURE=1` goes
    /// without, on a network that you trust.
    ///
    /// # Errors
    /// [`Error::Usage`](crate::Error::Usage) when the variables are missing or contradict each other, naming them;
    /// otherwise as [`Communicator::init`], also [`Error::Init`](crate::Error::Init) when somebody else listens where
    /// the ranks are to meet.
    pub fn init_env(config: &Config) -> Result<Communicator> {
        Communicator::init_turn(Turn::take(), config)
    }

    /// [`Communicator::init_env`], for who has to take the turn before something that may fail.
    pub(crate) fn init_turn(turn: Turn, config: &Config) -> Result<Communicator> {
        log::begin();
        let deadlines = config.clone().check()?;
        Communicator::init_launched(&env::launch()?, turn, config, deadlines)
    }

    fn init_launched(
        launch: &Launch,
        turn: Turn,
        config: &Config,
        deadlines: Deadlines,
    ) -> Result<Communicator> {
        let (rank, ranks) = (launch.rank, launch.ranks);
        env::meet(launch, turn, deadlines.init, |id, left| {
            // The time that it took to find rank 0 is init's, not that of the operations.
            let hurried = Config {
                timeout: Some(left),
                ..config.clone()
            };
            let mut comm = Communicator::init(ranks, id, rank, &hurried)?;
            comm.set_timeout(deadlines.operations);
            // What is made of it has the time that was set.
            comm.config.timeout = config.timeout;
            comm.deadlines = deadlines;
            Ok(comm)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bootstrap::env::Variables;

    #[test]
    fn what_is_made_of_a_launched_one_has_the_default_deadlines() {
        let look_up = |name: &str| match name {
            "RANK" => Some("0".to_owned()),
            "WORLD_SIZE" => Some("1".to_owned()),
            "TORCHELASTIC_RUN_ID" => Some(format!("deadlines {}", std::process::id())),
            _ => None,
        };
        let launch = Launch::read(&Variables::of(&look_up), std::iter::empty());
        let launch = launch.unwrap().expect("a launch");
        let config = Config::default();
        let deadlines = config.clone().check().unwrap();
        let comm = Communicator::init_launched(&launch, Turn::take(), &config, deadlines).unwrap();
        assert_eq!(comm.settings(None).unwrap().timeout, None);
    }
}
