//! `ccl-topo verify`: proves the library's own schedules, or an algorithm of others, or tells what is wrong.

mod msccl;
mod own;

use super::simulate::{algorithm, collective};
use crate::plan::algo::Algorithm;
use crate::types::Collective;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What to prove.
#[derive(Debug, clap::Args)]
pub(super) struct Verify {
    /// The collective whose schedules are proved: allreduce, broadcast, allgather, ...; else a file with an
    /// algorithm in MSCCL's XML (./allreduce if it is called like a collective), or -
    #[arg(value_name = "OP|FILE")]
    what: PathBuf,
    /// Among how many ranks; a file says it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    ranks: Option<u32>,
    /// The library's algorithm [default: all that can]
    #[arg(long, value_name = "NAME", value_parser = algorithm, requires = "ranks")]
    algorithm: Option<&'static Algorithm>,
    /// The root of a collective that has one
    #[arg(long, value_name = "R", default_value_t = 0)]
    root: u32,
    /// Bytes of the whole vector, to tell what ranks pass in bytes; a proof holds for all lengths
    #[arg(long, value_name = "BYTES", value_parser = crate::perf::bytes)]
    bytes: Option<u64>,
    /// Messages that a connection of a file's algorithm holds until they are received [default: 2 for Simple, 8 for
    /// LL and LL128, as in RCCL]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), conflicts_with = "ranks")]
    slots: Option<u16>,
}

impl Verify {
    /// Whether there are such schedules, as far as that is known before a file is read.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.own()? {
            Some(asked) => asked.algorithms().map(drop),
            None => Ok(()),
        }
    }

    pub(super) fn run(&self) -> Result<(String, ExitCode), String> {
        if let Some(asked) = self.own()? {
            return asked.tell();
        }
        msccl::Asked {
            file: Path::new(&self.what),
            root: self.root,
            slots: self.slots.map(usize::from),
            bytes: self.bytes,
        }
        .tell()
    }

    /// The library's schedules that are asked for; none if it is a file.
    fn own(&self) -> Result<Option<own::Asked>, String> {
        let named = self.what.to_str().map(collective);
        match (named, self.ranks) {
            (Some(Ok(operation)), Some(ranks)) => {
                let ranks = ranks as usize;
                Ok(Some(own::Asked {
                    operation: rooted(operation, self.root, ranks)?,
                    ranks,
                    algorithm: self.algorithm,
                    bytes: self.bytes,
                }))
            }
            (Some(Ok(operation)), None) => {
                Err(format!("{} among how many ranks? --ranks N", operation.name()))
            }
            (_, Some(_)) => Err(format!(
                "--ranks goes with a collective: {} is none, and a file says how many ranks it is for",
                self.what.display()
            )),
            (_, None) => Ok(None),
        }
    }
}

/// The collective with this root.
fn rooted(operation: Collective, to: u32, ranks: usize) -> Result<Collective, String> {
    let mut operation = operation;
    match &mut operation {
        Collective::Broadcast { root }
        | Collective::Reduce { root }
        | Collective::Gather { root }
        | Collective::Scatter { root } => *root = to,
        _ if to != 0 => return Err(format!("{} has no root", operation.name())),
        _ => {}
    }
    match (to as usize) < ranks {
        true => Ok(operation),
        false => Err(format!("--root {to} is none of {ranks} ranks")),
    }
}

/// So many vectors, in bytes if those are known.
fn amount(vectors: f64, bytes: Option<u64>) -> String {
    match bytes {
        Some(bytes) => format!("{:.0} B", vectors * bytes as f64),
        None => format!("{vectors:.3} vectors"),
    }
}
