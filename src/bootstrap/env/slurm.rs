//! What Slurm's variables mean: steps, lists of nodes and of tasks.

use super::variables::Variables;
use crate::types::{Error, Result};
use sha2::{Digest, Sha256};

pub(super) const RANK: &str = "SLURM_PROCID";
pub(super) const RANKS: [&str; 2] = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"];
pub(super) const RANKS_PER_NODE: &str = "SLURM_STEP_TASKS_PER_NODE";
pub(super) const NODES: &str = "SLURM_STEP_NODELIST";

/// Whether `srun` started this process. A batch script has a `SLURM_PROCID` too, but it is no rank; nor is the shell
/// of an interactive step, which has one of the ids that Slurm keeps for itself.
pub(super) fn in_a_step(variables: &Variables<'_>) -> bool {
    let step = variables.text("SLURM_STEP_ID");
    step.is_some_and(|step| step.parse::<u32>().is_ok_and(|step| step < OWN_STEPS))
}

/// Whether the PMI variables are Slurm's own, of `srun --mpi=pmi2`: then its others say more. They are not those of
/// an `mpiexec` that uses `srun` to start one helper on each node, whose numbers are the helper's.
pub(super) fn speaks_pmi(variables: &Variables<'_>) -> bool {
    let same = |pmi: &str, slurm: &[&str]| match (variables.text(pmi), variables.first(slurm)) {
        (Some(one), Some(other)) => one == other.value,
        _ => false,
    };
    in_a_step(variables)
        && variables.text("MPI_LOCALNRANKS").is_none()
        && same("PMI_RANK", &[RANK])
        && same("PMI_SIZE", &RANKS)
}

/// How many of the step's `ranks` are on this node.
pub(super) fn ranks_here(variables: &Variables<'_>, ranks: usize) -> Result<Option<usize>> {
    if variables.number("SLURM_STEP_NUM_NODES", "the number of nodes")? == Some(1) {
        return Ok(Some(ranks));
    }
    let node = variables.number("SLURM_NODEID", "this node's number")?;
    let (Some(list), Some(node)) = (variables.text(RANKS_PER_NODE), node) else {
        return Ok(None);
    };
    tasks_of_node(&list, node).map(Some).ok_or_else(|| {
        Error::usage(format!(
            "{RANKS_PER_NODE}={list} does not tell the tasks of node {node}: it must look like 4(x2),3"
        ))
    })
}

/// The number for node `node` in a list such as `4(x2),3`: two nodes with 4 tasks, then one with 3.
pub(super) fn tasks_of_node(list: &str, mut node: usize) -> Option<usize> {
    for entry in list.split(',') {
        let (tasks, nodes) = match entry.split_once("(x") {
            Some((tasks, rest)) => (tasks, rest.strip_suffix(')')?.parse().ok()?),
            None => (entry, 1),
        };
        if node < nodes {
            return tasks.trim().parse().ok();
        }
        node -= nodes;
    }
    None
}

/// The first host of a list such as `rack2node[01-04,7],login`: here `rack2node01`.
pub(super) fn first_host(list: &str) -> Option<String> {
    let mut host = String::new();
    let mut rest = list.trim();
    loop {
        let end = rest.find(['[', ',']).unwrap_or(rest.len());
        host.push_str(&rest[..end]);
        let Some(inside) = rest[end..].strip_prefix('[') else {
            break; // a comma or the end
        };
        let (choices, after) = inside.split_once(']')?;
        host.push_str(choices.split(['-', ',']).next()?);
        rest = after;
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_".contains(c);
    (!host.is_empty() && host.chars().all(fits)).then_some(host)
}

/// A port that all ranks of a step make of its numbers, so that steps at the same time have different ones as a rule.
/// Below the kernel's range for outgoing connections.
pub(super) fn port(variables: &Variables<'_>) -> u16 {
    let text = |name| variables.text(name).unwrap_or_default();
    let hash = Sha256::digest(format!("{}.{}", text("SLURM_JOB_ID"), text("SLURM_STEP_ID")));
    PORTS.0 + u16::from_le_bytes([hash[0], hash[1]]) % (PORTS.1 - PORTS.0)
}

const PORTS: (u16, u16) = (10_000, 30_000);

/// From here on, ids are Slurm's own: interactive, batch and others.
const OWN_STEPS: u32 = 0xffff_fff0;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_host_of_a_list() {
        for (list, host) in [
            ("node1", "node1"),
            ("a,b", "a"),
            ("node[01-04,7]", "node01"),
            ("node[7,9-12]x,y", "node7x"),
            ("rack[1-2]node[03-05]", "rack1node03"),
            (" n[5] ", "n5"),
        ] {
            assert_eq!(first_host(list).as_deref(), Some(host), "{list}");
        }
        for bad in ["", ",", "node[1", "[]", "a]", "[[1]]"] {
            assert_eq!(first_host(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_tasks_of_a_node() {
        let all = |list| (0..4).map(|node| tasks_of_node(list, node)).collect::<Vec<_>>();
        assert_eq!(all("4(x2),3"), [Some(4), Some(4), Some(3), None]);
        assert_eq!(all("5"), [Some(5), None, None, None]);
        assert_eq!(all("1,2(x9)"), [Some(1), Some(2), Some(2), Some(2)]);
        for bad in ["", "x", "2(x", "2(xy)", "-1"] {
            assert_eq!(tasks_of_node(bad, 0), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn nothing_in_a_list_makes_it_panic(list in "[a-c0-9(x),\\[\\]-]{0,20}", node: usize) {
            let _ = tasks_of_node(&list, node);
            if let Some(host) = first_host(&list) {
                prop_assert!(!host.contains([',', '[']), "{}", host);
            }
        }

        #[test]
        fn tasks_are_those_of_the_list_written_out(runs in proptest::collection::vec((0..9usize, 1..4usize), 1..5)) {
            let list: Vec<String> = runs.iter().map(|(tasks, nodes)| format!("{tasks}(x{nodes})")).collect();
            let nodes: Vec<usize> = runs.iter().flat_map(|&(tasks, nodes)| vec![tasks; nodes]).collect();
            for (node, &tasks) in nodes.iter().enumerate() {
                prop_assert_eq!(tasks_of_node(&list.join(","), node), Some(tasks));
            }
            prop_assert_eq!(tasks_of_node(&list.join(","), nodes.len()), None);
        }
    }
}
