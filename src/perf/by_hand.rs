//! `--rendezvous`: a rank that was started by hand, as a launcher would start it.

use super::args::Args;
use std::{env, os::unix::process::CommandExt, process::Command};

/// Where ranks that were started by hand meet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rendezvous {
    host: String,
    port: u16,
}

impl Rendezvous {
    pub(super) fn parse(text: &str) -> Result<Rendezvous, String> {
        let wanted =
            || "give the host of rank 0 and a port that is free there, e.g. node0:29500 or [fd00::1]:29500";
        let (host, port) = text.rsplit_once(':').ok_or_else(wanted)?;
        let bare = match host.strip_prefix('[').map(|host| host.strip_suffix(']')) {
            Some(inside) => inside,
            None => (!host.contains(':')).then_some(host),
        };
        match (bare, port.parse()) {
            (Some(host), Ok(port)) if !host.is_empty() && port > 0 => Ok(Rendezvous {
                host: host.to_owned(),
                port,
            }),
            _ => Err(wanted().to_owned()),
        }
    }
}

/// Goes on as the rank that the command line names, if it names one: with the variables of a launcher, in this process.
/// Returns if there is nothing to do, or it failed.
///
/// # Errors
/// One line.
pub(super) fn go_on(args: &Args) -> Result<(), String> {
    let (Some(at), Some(rank), Some(ranks)) = (&args.rendezvous, args.rank, args.nranks) else {
        return Ok(());
    };
    if rank >= ranks {
        return Err(format!(
            "--rank {rank} of --nranks {ranks}: ranks are numbered from 0 to {}",
            ranks - 1
        ));
    }
    let variables = [
        ("RANK", rank.to_string()),
        ("WORLD_SIZE", ranks.to_string()),
        ("MASTER_ADDR", at.host.clone()),
        ("MASTER_PORT", at.port.to_string()),
        ("CCL_MASTER_ADDR", at.host.clone()),
        ("CCL_MASTER_PORT", at.port.to_string()),
    ];
    // What an outer launcher may have said of its own ranks.
    let others = [
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
    ];
    let is_set = |(name, value): &(&str, String)| env::var(name).as_ref() == Ok(value);
    if variables.iter().all(is_set) && others.iter().all(|name| env::var_os(name).is_none()) {
        return Ok(()); // it is the second time
    }
    let program = env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut again = Command::new(program);
    again.args(env::args_os().skip(1)).envs(variables);
    for other in others {
        again.env_remove(other);
    }
    Err(format!("cannot start it as rank {rank}: {}", again.exec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_told_apart() {
        let parsed = |text| Rendezvous::parse(text).map(|at| (at.host, at.port));
        assert_eq!(parsed("node0:29500"), Ok(("node0".to_owned(), 29500)));
        assert_eq!(parsed("10.0.0.1:1"), Ok(("10.0.0.1".to_owned(), 1)));
        assert_eq!(parsed("[fd00::1]:7"), Ok(("fd00::1".to_owned(), 7)));
        for wrong in [
            "node0",
            ":29500",
            "node0:",
            "node0:0",
            "node0:65536",
            "fe80::1:7",
            "[]:7",
            "[fe80::1:7",
            "a:b",
        ] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
