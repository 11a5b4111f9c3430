//! NCCL's description of a system (`NCCL_TOPO_DUMP_FILE`, `NCCL_TOPO_FILE`), and RCCL's, which has xGMI links.

use super::{Flaw, Format, Lines, Reading, xml};
use crate::topo::graph::Graph;

pub(super) const FORMAT: Format = Format {
    name: "nccl-xml",
    about: "NCCL's or RCCL's system",
    sniff: |text| xml::begins(text, &["system"]),
    read,
};

fn read(text: &str, source: &str) -> Result<Reading, Flaw> {
    let lines = Lines::new(text);
    let _document = xml::parse(text, source, &lines)?;
    Ok(Reading {
        graph: Graph::new(),
        repairs: Vec::new(),
    })
}
