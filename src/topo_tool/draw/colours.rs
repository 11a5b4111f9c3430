//! What is drawn in which colour, how wide, and the legend that tells it.

use super::page::{Letters, Page, Rect, Shape};
use crate::topo::graph::{LinkKind, NodeKind};

/// The ground and the border of a box.
pub(super) fn of_node(kind: NodeKind) -> [&'static str; 2] {
    match kind {
        NodeKind::Rank => ["#fff6c9", "#9a8000"],
        NodeKind::Gpu => ["#d8f1d9", "#2e7d32"],
        NodeKind::Npu => ["#d3f0ec", "#00796b"],
        NodeKind::Cores => ["#eef3fc", "#7f9bcf"],
        NodeKind::Numa => ["#dce7fb", "#3b6cc7"],
        NodeKind::Package => ["#e6e9fb", "#5560b8"],
        NodeKind::Host => ["#f8f9fb", "#7d8795"],
        NodeKind::RootComplex => ["#dfe3e9", "#4d5866"],
        NodeKind::PciSwitch => ["#edf0f4", "#6b7685"],
        NodeKind::PciFunction => ["#f3efe3", "#85764a"],
        NodeKind::NvSwitch => ["#e6f6c9", "#5b8a00"],
        NodeKind::Nic => ["#ffe7cc", "#bf5f00"],
        NodeKind::NicPort => ["#fff1e0", "#d58a3c"],
        NodeKind::Leaf => ["#ffe2e0", "#bf3a2e"],
        NodeKind::Spine => ["#f9def3", "#a0308f"],
        NodeKind::CoreSwitch => ["#e9dffb", "#6a3fc0"],
        NodeKind::Wan => ["#dff4fb", "#13789c"],
        NodeKind::Opaque => ["#f2f2f2", "#6e6e6e"],
    }
}

/// The colour of an edge.
pub(super) fn of_link(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Local => "#a9b0ba",
        LinkKind::NvLink => "#62a300",
        LinkKind::XGmi => "#d3372f",
        LinkKind::Hccs => "#c2185b",
        LinkKind::C2c => "#00897b",
        LinkKind::Pcie => "#5b6b7f",
        LinkKind::Socket => "#3b6cc7",
        LinkKind::Memory => "#8aa0c0",
        LinkKind::Shm => "#4f9fa8",
        LinkKind::Ib => "#8e24aa",
        LinkKind::Roce => "#e07b00",
        LinkKind::Tcp => "#b8860b",
        LinkKind::Wan => "#13789c",
        LinkKind::Opaque => "#8c8c8c",
    }
}

pub(super) fn link_name(kind: LinkKind) -> &'static str {
    match kind {
        LinkKind::Local => "one thing",
        LinkKind::NvLink => "NVLink",
        LinkKind::XGmi => "xGMI",
        LinkKind::Hccs => "HCCS",
        LinkKind::C2c => "C2C",
        LinkKind::Pcie => "PCIe",
        LinkKind::Socket => "sockets",
        LinkKind::Memory => "memory",
        LinkKind::Shm => "shared memory",
        LinkKind::Ib => "InfiniBand",
        LinkKind::Roce => "RoCE",
        LinkKind::Tcp => "TCP",
        LinkKind::Wan => "WAN",
        LinkKind::Opaque => "link",
    }
}

/// Pixels that an edge is wide: a little more for each doubling.
pub(super) fn width(bytes_per_second: u64) -> f64 {
    let steps = [1, 3, 6, 12, 24, 48, 96, 192, 384, 768].iter();
    let passed = steps.filter(|&&giga| bytes_per_second >= giga * 1_000_000_000);
    1.0 + 0.55 * passed.count() as f64
}

/// Of rings, trees and whatever else has no colour of its own.
pub(super) fn of_number(number: usize) -> &'static str {
    const ALL: [&str; 10] = [
        "#1f6fc4", "#c9510c", "#2e8b3d", "#9b30a8", "#b01e3c", "#00838f", "#8a6d00", "#5646c9", "#c2187a",
        "#4d5866",
    ];
    ALL[number % ALL.len()]
}

/// What stands before an entry of the legend.
#[derive(Debug, Clone)]
pub(super) enum Sample {
    Box([&'static str; 2]),
    Line {
        colour: &'static str,
        width: f64,
        dashes: &'static str,
    },
}

/// Adds a legend in columns below all that there is.
pub(super) fn legend(page: &mut Page, entries: &[(Sample, String)], margin: f64) {
    let letters = Letters::PLAIN;
    let space = page.width - 2.0 * margin;
    let widest = entries.iter().map(|(_, text)| letters.width(text));
    let column = (widest.fold(0.0, f64::max) + SWATCH + 24.0).min(space);
    let columns = ((space / column) as usize).clamp(1, entries.len().max(1));
    let rows = entries.len().div_ceil(columns);
    let line = letters.height() + 6.0;
    for (at, (sample, text)) in entries.iter().enumerate() {
        let (x, y) = (
            margin + column * (at / rows) as f64,
            page.height + line * (at % rows) as f64,
        );
        let middle = y + letters.height() / 2.0;
        match sample {
            Sample::Box([fill, border]) => {
                let at = Rect {
                    x: x + 4.0,
                    y: y + 1.0,
                    width: SWATCH - 8.0,
                    height: letters.height() - 2.0,
                };
                page.add(Shape::rect(at, 3.0).fill(fill).stroke(border, 1.2), "");
            }
            Sample::Line {
                colour,
                width,
                dashes,
            } => {
                let line = Shape::line((x + 2.0, middle), (x + SWATCH - 2.0, middle));
                page.add(dashed(line.stroke(colour, *width), dashes), "");
            }
        }
        let text = letters.cut(text, column - SWATCH - 12.0);
        page.label(&text, (x + SWATCH + 6.0, y), letters, None);
    }
    page.height += line * rows as f64;
}

const SWATCH: f64 = 34.0;

pub(super) fn dashed(shape: Shape, dashes: &str) -> Shape {
    match dashes {
        "" => shape,
        dashes => shape.word("stroke-dasharray", dashes),
    }
}
