//! [`Launch`]: what a launcher told this process by environment variables, as a function of the variables.

use super::{
    ancestor,
    carrier::Carrier,
    master::MasterPort,
    slurm,
    variables::{Set, Variables},
};
use crate::types::{Error, Result};
use std::{fmt, net::IpAddr};
use tracing::warn;

/// Who started the ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Launcher {
    /// torchrun, or whoever sets `RANK` and `WORLD_SIZE` as it does.
    Torchrun,
    OpenMpi,
    /// MPICH and its kin: a process manager that speaks PMI.
    Mpich,
    Slurm,
    /// Pods of an indexed Job.
    Kubernetes,
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Launcher::Torchrun => "torchrun (RANK and WORLD_SIZE)",
            Launcher::OpenMpi => "Open MPI",
            Launcher::Mpich => "MPICH (PMI)",
            Launcher::Slurm => "Slurm",
            Launcher::Kubernetes => "Kubernetes (indexed Job)",
        })
    }
}

/// What a rank knows of the job that it was started in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) launcher: Launcher,
    pub(crate) rank: usize,
    pub(crate) ranks: usize,
    /// This rank among those of its host.
    pub(crate) local_rank: Option<usize>,
    /// How many ranks its host has.
    pub(crate) local_ranks: Option<usize>,
    /// What tells this job from others, as `NAME=value`: the same for all ranks on all hosts.
    pub(super) job: Vec<String>,
    /// What tells it from itself before it was started anew, where all ranks are on one host: torchrun's agents count by themselves.
    pub(super) life: Option<String>,
    /// The host of rank 0.
    pub(super) master: Option<String>,
    pub(super) master_port: MasterPort,
    /// By what the launcher carries a text from rank 0 to all ranks.
    pub(super) carrier: Option<Carrier>,
}

/// Where the ranks of a job are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spread {
    OneHost,
    SeveralHosts,
    /// Nobody said, but rank 0's address is not this host by its looks, or the launcher would carry it.
    PerhapsSeveral,
}

impl Launch {
    /// What a launcher told this process, or `None` if none has.
    ///
    /// # Errors
    /// As [`Launch::read`].
    pub(crate) fn of_this_process() -> Result<Option<Launch>> {
        Launch::read(&Variables::of_this_process(), ancestor::names())
    }

    /// What the variables say, or `None` if no launcher has set any. `RANK` and `WORLD_SIZE` come first, because who
    /// sets them under another launcher means them. Of several launchers, one inside another's job, the nearest among
    /// `ancestors` counts, the names of this process's ancestors from its parent on; where they do not tell, the one that may
    /// run inside another one's job.
    ///
    /// # Errors
    /// [`Error::Usage`] that names the variable, its value and what was wanted; or two launchers, when nothing tells which of them has
    /// started this process.
    pub(crate) fn read(
        variables: &Variables<'_>,
        ancestors: impl Iterator<Item = String>,
    ) -> Result<Option<Launch>> {
        let (claims, half) = claims(variables);
        let Some(chosen) = chosen(&claims, ancestors) else {
            return match half {
                None => Ok(None),
                Some((set, missing)) => Err(Error::usage(format!(
                    "{set} is set but {missing} is not: set both, or none to do without a launcher"
                ))),
            };
        };
        let launch = chosen.claim.names.launch(variables, &chosen.claim.ranks.name)?;
        if let Some(other) = chosen.contradiction(&claims, variables) {
            // Ranks that are alone would go on without each other.
            if launch.ranks == 1 && launch.launcher != Launcher::Torchrun {
                return Err(Error::usage(other));
            }
            warn!(rank = launch.rank, ranks = launch.ranks, "init: {other}");
        }
        Ok(Some(launch))
    }

    /// Where the ranks are.
    pub(super) fn spread(&self) -> Spread {
        match (self.local_ranks, &self.master) {
            (Some(here), _) if here == self.ranks => Spread::OneHost,
            (Some(_), _) => Spread::SeveralHosts,
            (None, _) if self.ranks == 1 => Spread::OneHost,
            (None, Some(host)) if !is_loopback(host) => Spread::PerhapsSeveral,
            (None, None) if self.carrier.is_some() => Spread::PerhapsSeveral,
            (None, _) => Spread::OneHost,
        }
    }

    /// How many ranks this host has, as far as that is known.
    #[cfg(any(feature = "cli", test))]
    pub(crate) fn ranks_here(&self) -> usize {
        match (self.local_ranks, self.spread()) {
            (Some(here), _) => here,
            (None, Spread::OneHost) => self.ranks,
            (None, _) => 1,
        }
    }

    /// Whether the job's variables tell it from others that the same user runs at the same time on this host.
    pub(super) fn is_named(&self) -> bool {
        let own = |variable: &String| !MASTER.iter().any(|name| variable.starts_with(name));
        self.launcher == Launcher::Torchrun || self.job.iter().any(own)
    }
}

/// What a launcher says of this process.
struct Claim {
    names: &'static Names,
    rank: Set,
    ranks: Set,
}

/// The claim that counts.
struct Chosen<'a> {
    claim: &'a Claim,
    /// Whether its launcher is known to have started this process, and no other one after it.
    is_nearest: bool,
}

/// All of them, in the order of [`LAUNCHERS`]; and the first variable that is set without the other one of its pair, with that.
fn claims(variables: &Variables<'_>) -> (Vec<Claim>, Option<(Set, &'static str)>) {
    let (mut claims, mut half) = (Vec::new(), None);
    for names in LAUNCHERS.iter().filter(|names| (names.applies)(variables)) {
        match (variables.first(&[names.rank]), variables.first(names.ranks)) {
            (Some(rank), Some(ranks)) => claims.push(Claim { names, rank, ranks }),
            (None, None) => {}
            (Some(set), None) => half = half.or(Some((set, names.ranks[0]))),
            (None, Some(set)) => half = half.or(Some((set, names.rank))),
        }
    }
    (claims, half)
}

/// `None` of none.
fn chosen(claims: &[Claim], ancestors: impl Iterator<Item = String>) -> Option<Chosen<'_>> {
    let first = claims.first()?;
    let is_mpi = |claim: &&Claim| !claim.names.processes.is_empty();
    let nearest = || {
        let mut ancestors = ancestors;
        ancestors.find_map(|name| claims.iter().find(|claim| claim.names.has_process(&name)))
    };
    // Nobody asks the system where there is nothing to choose.
    let is_one_of_several = is_mpi(&first) && claims.iter().filter(is_mpi).count() > 1;
    let nearest = is_one_of_several.then(nearest).flatten();
    Some(Chosen {
        claim: nearest.unwrap_or(first),
        is_nearest: nearest.is_some(),
    })
}

impl Chosen<'_> {
    /// What another launcher says, where it may be the one that has started this process: either one's variables may have been left
    /// over. Those of torchrun itself were not.
    fn contradiction(&self, claims: &[Claim], variables: &Variables<'_>) -> Option<String> {
        let by_hand = self.claim.names.launcher == Launcher::Torchrun;
        if self.is_nearest || by_hand && variables.text("TORCHELASTIC_RUN_ID").is_some() {
            return None;
        }
        let numbers = |claim: &Claim| [&claim.rank, &claim.ranks].map(|set| set.value.trim().to_owned());
        // A pod may have several ranks.
        let mut others = claims.iter().filter(|claim| !claim.names.processes.is_empty());
        let other = others.find(|other| numbers(other) != numbers(self.claim))?;
        let Claim { rank, ranks, .. } = self.claim;
        let (mine, its) = (self.claim.names.launcher, other.names.launcher);
        Some(match by_hand {
            true => format!(
                "{rank} and {ranks} count, and {its} has set {} and {}: unset {} and {} if they were left over",
                other.rank, other.ranks, rank.name, ranks.name
            ),
            false => format!(
                "{rank} and {ranks} of {mine} count, and {its} has set {} and {}: unset those that were left over, or set RANK and \
                 WORLD_SIZE",
                other.rank, other.ranks
            ),
        })
    }
}

/// A launcher's variables.
struct Names {
    launcher: Launcher,
    /// Whether to look at them at all.
    applies: fn(&Variables<'_>) -> bool,
    rank: &'static str,
    /// The first that is set counts.
    ranks: &'static [&'static str],
    /// Its processes among the ancestors of the ranks.
    processes: &'static [&'static str],
    /// This rank among those of its host, and how many these are. The first that are set count.
    local: &'static [(&'static str, &'static str)],
    /// What names the job.
    job: &'static [&'static str],
    /// How often it was started.
    life: Option<&'static str>,
}

static LAUNCHERS: [Names; 5] = [
    Names {
        launcher: Launcher::Torchrun,
        applies: |_| true,
        rank: "RANK",
        ranks: &["WORLD_SIZE"],
        processes: &[],
        local: &[("LOCAL_RANK", "LOCAL_WORLD_SIZE")],
        job: &["TORCHELASTIC_RUN_ID"],
        life: Some("TORCHELASTIC_RESTART_COUNT"),
    },
    Names {
        launcher: Launcher::OpenMpi,
        applies: |_| true,
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: &["OMPI_COMM_WORLD_SIZE"],
        processes: &[
            "mpirun", "mpiexec", "orterun", "orted", "prterun", "prted", "prte",
        ],
        local: &[("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE")],
        job: &["PMIX_NAMESPACE"],
        life: None,
    },
    Names {
        launcher: Launcher::Mpich,
        applies: |variables| !slurm::speaks_pmi(variables),
        rank: "PMI_RANK",
        ranks: &["PMI_SIZE"],
        processes: &[ancestor::PROXY],
        local: &[
            ("MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
            ("PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"), // HPE's
        ],
        job: &["PMIX_NAMESPACE"],
        life: None,
    },
    Names {
        launcher: Launcher::Slurm,
        applies: slurm::in_a_step,
        rank: slurm::RANK,
        ranks: &slurm::RANKS,
        processes: &["slurmstepd"],
        local: &[("SLURM_LOCALID", slurm::RANKS_PER_NODE)], // a list of all nodes' numbers
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
        life: None,
    },
    Names {
        launcher: Launcher::Kubernetes,
        // Without the number of ranks a pod is none, but may start some.
        applies: |variables| variables.text("WORLD_SIZE").is_some(),
        rank: "JOB_COMPLETION_INDEX",
        ranks: &["WORLD_SIZE"],
        processes: &[],
        local: &[("LOCAL_RANK", "LOCAL_WORLD_SIZE")],
        job: &[],
        life: None,
    },
];

/// Where rank 0 is, whatever the launcher.
const MASTER: [&str; 4] = ["CCL_MASTER_ADDR", "CCL_MASTER_PORT", "MASTER_ADDR", "MASTER_PORT"];

impl Names {
    /// Whether a process of this name is one of the launcher's; `mpirun.openmpi` is, where `mpirun` is.
    fn has_process(&self, name: &str) -> bool {
        let first = name.split('.').next().unwrap_or(name);
        self.processes.contains(&first)
    }

    /// The names of which one is set, else the first.
    fn local(&self, variables: &Variables<'_>) -> (&'static str, &'static str) {
        let is_set = |(rank, ranks): &&(&str, &str)| variables.first(&[rank, ranks]).is_some();
        let set = self.local.iter().find(is_set).or(self.local.first());
        set.copied().unwrap_or_default()
    }

    fn launch(&self, variables: &Variables<'_>, ranks_name: &str) -> Result<Launch> {
        let ranks = variables.number(ranks_name, "the number of ranks")?.unwrap_or(0);
        if ranks == 0 {
            return Err(Error::usage(format!(
                "{ranks_name}=0: there must be at least 1 rank"
            )));
        }
        let rank = variables.number(self.rank, "this process's rank")?.unwrap_or(0);
        below((self.rank, rank), (ranks_name, ranks))?;
        let slurm = self.launcher == Launcher::Slurm;
        let (local_name, name) = self.local(variables);
        let local_rank = variables.number(local_name, "this process's rank on its host")?;
        let local_ranks = match self.launcher {
            Launcher::Slurm => slurm::ranks_here(variables, ranks)?,
            _ => variables.number(name, "the number of ranks on this host")?,
        };
        if let Some(here) = local_ranks {
            if here == 0 || here > ranks {
                return Err(Error::usage(format!(
                    "{name} says that this host has {here} ranks, but {ranks_name}={ranks}: there must be 1 to {ranks}"
                )));
            }
            if let Some(rank) = local_rank {
                below((local_name, rank), (name, here))?;
            }
        }
        let unsaid = match self.launcher {
            Launcher::Kubernetes => Some(1), // a pod is a host of its own
            Launcher::Mpich if is_on_one_host(variables, ranks) => Some(ranks),
            _ => None,
        };
        let carries = matches!(
            self.launcher,
            Launcher::OpenMpi | Launcher::Mpich | Launcher::Slurm
        );
        let job = self.job.iter().chain(&MASTER);
        let first_node = || {
            variables
                .text(slurm::NODES)
                .and_then(|list| slurm::first_host(&list))
        };
        Ok(Launch {
            launcher: self.launcher,
            rank,
            ranks,
            local_rank,
            local_ranks: local_ranks.or(unsaid),
            carrier: carries
                .then(|| Carrier::of(self.launcher, variables, rank, ranks))
                .flatten(),
            job: job
                .filter_map(|name| Some(variables.first(&[name])?.to_string()))
                .collect(),
            life: (self.life).and_then(|name| Some(variables.first(&[name])?.to_string())),
            master: variables
                .text("CCL_MASTER_ADDR")
                .or_else(|| variables.text("MASTER_ADDR"))
                .map(without_brackets)
                .or_else(|| slurm.then(first_node).flatten()),
            master_port: MasterPort {
                own: variables.text("CCL_MASTER_PORT"),
                launcher_s: variables.text("MASTER_PORT"),
                derived: slurm.then(|| slurm::port(variables)),
            },
        })
    }
}

/// Whether Flux, which counts hosts and not their ranks, has started all of so many on one.
fn is_on_one_host(variables: &Variables<'_>, ranks: usize) -> bool {
    let is = |name, number: usize| variables.text(name) == Some(number.to_string());
    is("FLUX_JOB_NNODES", 1) && is("FLUX_JOB_SIZE", ranks)
}

/// An IPv6 address may be written as in a URL.
fn without_brackets(host: String) -> String {
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    inside.map(str::to_owned).unwrap_or(host)
}

fn below((name, number): (&str, usize), (limit_name, limit): (&str, usize)) -> Result<()> {
    if number < limit {
        return Ok(());
    }
    Err(Error::usage(format!(
        "{name}={number} does not fit {limit_name}={limit}: it must be 0 to {}",
        limit - 1
    )))
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || bare.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(variables: &[(&str, &str)]) -> Result<Option<Launch>> {
        read_below(variables, &[])
    }

    fn read_below(variables: &[(&str, &str)], ancestors: &[&str]) -> Result<Option<Launch>> {
        let look_up = |wanted: &str| {
            let found = variables.iter().find(|(name, _)| *name == wanted);
            found.map(|(_, value)| (*value).to_owned())
        };
        let ancestors = ancestors.iter().map(|name| (*name).to_owned());
        Launch::read(&Variables::of(&look_up), ancestors)
    }

    fn launch(variables: &[(&str, &str)]) -> Launch {
        read(variables).unwrap().expect("a launch")
    }

    fn mistake(variables: &[(&str, &str)]) -> String {
        match read(variables) {
            Err(Error::Usage { what }) => what.into_owned(),
            other => panic!("{variables:?}: {other:?}"),
        }
    }

    const TORCHRUN: [(&str, &str); 8] = [
        ("RANK", "5"),
        ("WORLD_SIZE", "8"),
        ("LOCAL_RANK", "1"),
        ("LOCAL_WORLD_SIZE", "4"),
        ("MASTER_ADDR", "10.0.0.7"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", "run"),
        ("TORCHELASTIC_RESTART_COUNT", "2"),
    ];

    #[test]
    fn torchrun_says_everything() {
        let launch = launch(&TORCHRUN);
        assert_eq!(launch.launcher, Launcher::Torchrun);
        assert_eq!((launch.rank, launch.ranks), (5, 8));
        assert_eq!((launch.local_rank, launch.local_ranks), (Some(1), Some(4)));
        assert_eq!(
            launch.job,
            [
                "TORCHELASTIC_RUN_ID=run",
                "MASTER_ADDR=10.0.0.7",
                "MASTER_PORT=29500"
            ]
        );
        assert_eq!(launch.life.as_deref(), Some("TORCHELASTIC_RESTART_COUNT=2"));
        assert_eq!(launch.master.as_deref(), Some("10.0.0.7"));
        let bracketed = self::launch(&[("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "[fd00::1]")]);
        assert_eq!(bracketed.master.as_deref(), Some("fd00::1"));
        assert_eq!(launch.master_port.number().unwrap(), 29501);
        assert_eq!((launch.spread(), launch.ranks_here()), (Spread::SeveralHosts, 4));
    }

    #[test]
    fn variables_that_were_left_over_are_told() {
        let told = |more: &[(&str, &str)]| {
            let mpi = [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3")];
            let all = [&mpi, more].concat();
            let look_up = |name: &str| {
                let found = all.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let variables = Variables::of(&look_up);
            let claims = claims(&variables).0;
            let chosen = chosen(&claims, std::iter::empty()).unwrap();
            chosen.contradiction(&claims, &variables)
        };
        assert_eq!(told(&[]), None);
        assert_eq!(told(&[("RANK", "2"), ("WORLD_SIZE", "3")]), None);
        let left = [("RANK", "0"), ("WORLD_SIZE", "1")];
        assert_eq!(
            told(&left).as_deref(),
            Some(
                "RANK=0 and WORLD_SIZE=1 count, and Open MPI has set OMPI_COMM_WORLD_RANK=2 and OMPI_COMM_WORLD_SIZE=3: unset RANK \
                 and WORLD_SIZE if they were left over"
            )
        );
        assert_eq!(told(&[&left[..], &[("TORCHELASTIC_RUN_ID", "7")]].concat()), None);
    }

    #[test]
    fn the_mpis_say_it_in_their_words() {
        let open = launch(&[
            ("OMPI_COMM_WORLD_RANK", "0"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
            ("PMIX_NAMESPACE", "640614401"),
        ]);
        assert_eq!((open.launcher, open.rank, open.ranks), (Launcher::OpenMpi, 0, 2));
        assert_eq!((open.spread(), open.is_named()), (Spread::OneHost, true));
        assert_eq!(open.job, ["PMIX_NAMESPACE=640614401"]);
        let mpich = launch(&[
            ("PMI_RANK", "1"),
            ("PMI_SIZE", "2"),
            ("MPI_LOCALRANKID", "0"),
            ("MPI_LOCALNRANKS", "1"),
            ("MASTER_PORT", "7"),
        ]);
        assert_eq!((mpich.launcher, mpich.rank, mpich.ranks), (Launcher::Mpich, 1, 2));
        assert_eq!((mpich.spread(), mpich.is_named()), (Spread::SeveralHosts, false));
    }

    #[test]
    fn others_that_speak_pmi_have_words_of_their_own() {
        let spread = |more: &[(&str, &str)]| {
            let launch = launch(&[&[("PMI_RANK", "3"), ("PMI_SIZE", "4")], more].concat());
            assert_eq!(launch.launcher, Launcher::Mpich);
            (launch.local_rank, launch.local_ranks, launch.spread())
        };
        let hpe = |here| [("PMI_LOCAL_RANK", "1"), ("PMI_LOCAL_SIZE", here)];
        assert_eq!(spread(&hpe("2")), (Some(1), Some(2), Spread::SeveralHosts));
        assert_eq!(spread(&hpe("4")), (Some(1), Some(4), Spread::OneHost));
        // Those of a job around this one.
        let hydra = [("MPI_LOCALRANKID", "3"), ("MPI_LOCALNRANKS", "4")];
        assert_eq!(
            spread(&[hpe("2"), hydra].concat()),
            (Some(3), Some(4), Spread::OneHost)
        );
        let flux = |hosts| {
            [
                ("PMI_FD", "7"),
                ("FLUX_JOB_SIZE", "4"),
                ("FLUX_JOB_NNODES", hosts),
            ]
        };
        assert_eq!(spread(&flux("2")), (None, None, Spread::PerhapsSeveral));
        assert_eq!(spread(&flux("1")), (None, Some(4), Spread::OneHost));
        assert_eq!(spread(&flux("1")[..1]).2, Spread::PerhapsSeveral);
        let told = [flux("2")[0], ("CCL_MASTER_ADDR", "localhost")];
        assert_eq!(spread(&told).2, Spread::OneHost);
        // With nothing that could carry anything.
        assert_eq!(spread(&[]).2, Spread::OneHost);
        let wrong = mistake(&[&[("PMI_RANK", "3"), ("PMI_SIZE", "4")], &hpe("5")[..]].concat());
        assert!(
            wrong.starts_with("PMI_LOCAL_SIZE says that this host has 5 ranks, but PMI_SIZE=4"),
            "{wrong}"
        );
    }

    const STEP: [(&str, &str); 9] = [
        ("SLURM_PROCID", "3"),
        ("SLURM_NTASKS", "4"),
        ("SLURM_LOCALID", "1"),
        ("SLURM_NODEID", "1"),
        ("SLURM_STEP_NUM_NODES", "2"),
        ("SLURM_STEP_TASKS_PER_NODE", "2(x2)"),
        ("SLURM_STEP_NODELIST", "node[07-08]"),
        ("SLURM_JOB_ID", "77"),
        ("SLURM_STEP_ID", "0"),
    ];

    #[test]
    fn slurm_counts_only_inside_a_step() {
        let launch = launch(&STEP);
        assert_eq!(
            (launch.launcher, launch.rank, launch.ranks),
            (Launcher::Slurm, 3, 4)
        );
        assert_eq!((launch.local_rank, launch.local_ranks), (Some(1), Some(2)));
        assert_eq!(launch.master.as_deref(), Some("node07"));
        assert!(launch.master_port.number().is_ok());
        assert_eq!(launch.job, ["SLURM_JOB_ID=77", "SLURM_STEP_ID=0"]);
        assert_eq!(read(&STEP[..8]).unwrap(), None, "a batch script is no rank");
        let mut interactive = STEP;
        interactive[8].1 = "4294967290";
        assert_eq!(read(&interactive).unwrap(), None);
        let one_node = [
            ("SLURM_STEP_NUM_NODES", "1"),
            ("SLURM_NTASKS", "4"),
            STEP[0],
            STEP[8],
        ];
        assert_eq!(self::launch(&one_node).spread(), Spread::OneHost);
    }

    #[test]
    fn pods_of_an_indexed_job_are_ranks_if_their_number_is_set() {
        let pod = [
            ("JOB_COMPLETION_INDEX", "2"),
            ("WORLD_SIZE", "4"),
            ("MASTER_ADDR", "ccl-0.ccl"),
            ("MASTER_PORT", "29500"),
        ];
        let launch = launch(&pod);
        assert_eq!(
            (launch.launcher, launch.rank, launch.ranks),
            (Launcher::Kubernetes, 2, 4)
        );
        assert_eq!((launch.spread(), launch.ranks_here()), (Spread::SeveralHosts, 1));
        assert_eq!(launch.master.as_deref(), Some("ccl-0.ccl"));
        assert_eq!(read(&pod[..1]).unwrap(), None);
        let torchrun = [&pod[..], &[("RANK", "3")]].concat();
        assert_eq!(self::launch(&torchrun).launcher, Launcher::Torchrun);
        assert_eq!(self::launch(&torchrun).rank, 3);
    }

    #[test]
    fn the_inner_launcher_is_believed() {
        let all = |more: &[(&'static str, &'static str)]| {
            let mut variables = STEP.to_vec();
            variables.extend(more);
            launch(&variables).launcher
        };
        assert_eq!(all(&[("PMI_RANK", "3"), ("PMI_SIZE", "4")]), Launcher::Slurm); // srun --mpi=pmi2
        assert_eq!(all(&[("PMI_RANK", "9"), ("PMI_SIZE", "16")]), Launcher::Mpich); // its mpiexec, by srun
        let open = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2")];
        assert_eq!(all(&open), Launcher::OpenMpi);
        assert_eq!(all(&TORCHRUN), Launcher::Torchrun);
        // Half of one launcher's variables beside the whole of another's are somebody else's.
        assert_eq!(all(&[("WORLD_SIZE", "2")]), Launcher::Slurm);
    }

    #[test]
    fn of_launchers_in_each_other_the_nearest_counts() {
        let open = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "1")];
        let mpich = [("PMI_RANK", "0"), ("PMI_SIZE", "3")];
        let both = [open, mpich].concat();
        let all = [&both[..], &STEP].concat();
        let below = |variables: &[(&str, &str)], ancestors: &[&str]| {
            let launch = read_below(variables, ancestors).unwrap().unwrap();
            (launch.launcher, launch.ranks)
        };
        let (proxy, mpirun, step) = ("hydra_pmi_proxy", "mpirun.openmpi", "slurmstepd");
        assert_eq!(
            below(&both, &["python", proxy, "bash", mpirun]),
            (Launcher::Mpich, 3)
        );
        assert_eq!(below(&both, &[mpirun, "bash", proxy]), (Launcher::OpenMpi, 1));
        assert_eq!(below(&all, &["prted", "sh", step]), (Launcher::OpenMpi, 1));
        assert_eq!(below(&all, &[proxy, step, mpirun]), (Launcher::Mpich, 3));
        assert_eq!(below(&all, &[step, proxy]), (Launcher::Slurm, 4));
        // One that has set nothing started nobody.
        assert_eq!(below(&both, &[step, proxy]), (Launcher::Mpich, 3));
        // Who sets these means them.
        let by_hand = [&all[..], &[("RANK", "1"), ("WORLD_SIZE", "2")]].concat();
        assert_eq!(below(&by_hand, &[step]), (Launcher::Torchrun, 2));
        // Where the ancestors do not tell, nobody goes on alone.
        let mistake = mistake(&both);
        assert_eq!(
            mistake,
            "OMPI_COMM_WORLD_RANK=0 and OMPI_COMM_WORLD_SIZE=1 of Open MPI count, and MPICH (PMI) has set PMI_RANK=0 and \
             PMI_SIZE=3: unset those that were left over, or set RANK and WORLD_SIZE"
        );
        assert_eq!(below(&[&mpich[..], &STEP].concat(), &[]), (Launcher::Mpich, 3));
    }

    #[test]
    fn nobody_launched_this() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(
            read(&[("MASTER_ADDR", "a"), ("RANK", ""), ("WORLD_SIZE", "")]).unwrap(),
            None
        );
    }

    #[test]
    fn mistakes_name_the_variable_and_what_was_wanted() {
        for (variables, wanted) in [
            (vec![("RANK", "0")], "RANK=0 is set but WORLD_SIZE is not"),
            (vec![("WORLD_SIZE", "2")], "WORLD_SIZE=2 is set but RANK is not"),
            (vec![("PMI_SIZE", "2")], "PMI_SIZE=2 is set but PMI_RANK is not"),
            (vec![("RANK", "x"), ("WORLD_SIZE", "2")], "RANK=x is no number"),
            (vec![("RANK", "-1"), ("WORLD_SIZE", "2")], "RANK=-1 is no number"),
            (
                vec![("RANK", "0"), ("WORLD_SIZE", "0")],
                "WORLD_SIZE=0: there must be at least 1",
            ),
            (
                vec![("RANK", "2"), ("WORLD_SIZE", "2")],
                "RANK=2 does not fit WORLD_SIZE=2: it must be 0 to 1",
            ),
            (
                vec![("RANK", "0"), ("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "3")],
                "LOCAL_WORLD_SIZE says that this host has 3 ranks, but WORLD_SIZE=2",
            ),
            (
                vec![
                    ("RANK", "0"),
                    ("WORLD_SIZE", "2"),
                    ("LOCAL_WORLD_SIZE", "1"),
                    ("LOCAL_RANK", "1"),
                ],
                "LOCAL_RANK=1 does not fit LOCAL_WORLD_SIZE=1: it must be 0 to 0",
            ),
        ] {
            let mistake = mistake(&variables);
            assert!(mistake.starts_with(wanted), "{mistake}");
        }
    }

    #[test]
    fn without_the_number_of_local_ranks_the_address_decides() {
        for (address, spread) in [
            (None, Spread::OneHost),
            (Some("localhost"), Spread::OneHost),
            (Some("LocalHost"), Spread::OneHost),
            (Some("127.0.0.1"), Spread::OneHost),
            (Some("127.9.9.9"), Spread::OneHost),
            (Some("::1"), Spread::OneHost),
            (Some("[::1]"), Spread::OneHost),
            (Some("10.0.0.1"), Spread::PerhapsSeveral),
            (Some("localhost.example.org"), Spread::PerhapsSeveral),
        ] {
            let mut variables = vec![("RANK", "0"), ("WORLD_SIZE", "2")];
            variables.extend(address.map(|address| ("MASTER_ADDR", address)));
            assert_eq!(launch(&variables).spread(), spread, "{address:?}");
            variables[1].1 = "1";
            assert_eq!(launch(&variables).spread(), Spread::OneHost, "{address:?}, alone");
        }
        let overridden = launch(&[
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("CCL_MASTER_ADDR", "127.0.0.1"),
        ]);
        assert_eq!(overridden.spread(), Spread::OneHost);
    }

    proptest! {
        /// Whatever the texts are, there is a launch whose numbers fit or a mistake that names a variable.
        #[test]
        fn numbers_fit_or_the_variable_is_named(
            texts in proptest::collection::vec(proptest::option::of("[0-9]{1,2}|-1|x|| 3 |99999999999999999999"), 4)
        ) {
            let names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"];
            let set: Vec<(&str, &str)> = (names.into_iter().zip(&texts))
                .filter_map(|(name, text)| Some((name, text.as_deref()?)))
                .collect();
            match read(&set) {
                Ok(None) => {
                    let unset = |at: usize| texts[at].as_ref().is_none_or(|text| text.is_empty());
                    prop_assert!(unset(0) && unset(1));
                }
                Ok(Some(launch)) => {
                    prop_assert!(launch.rank < launch.ranks && launch.ranks_here() <= launch.ranks);
                    prop_assert!(launch.local_ranks.is_none_or(|n| launch.local_rank.is_none_or(|r| r < n)));
                }
                Err(error) => {
                    let text = error.to_string();
                    prop_assert!(names.iter().any(|name| text.starts_with(name)), "{}", text);
                }
            }
        }
    }
}
