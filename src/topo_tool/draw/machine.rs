//! The picture of a graph: its boxes and edges.

use super::colours::{self, Sample, dashed};
use super::layout::{DEVICES, Layout};
use super::links::{Wire, entries, wires};
use super::page::{Letters, Page, Rect, Shape};
use super::view::View;
use crate::topo::{
    graph::{Graph, NodeKind},
    show::{counts, kind},
};

/// A graph, laid out on a page that has a title.
#[derive(Debug)]
pub(super) struct Drawn {
    pub(super) page: Page,
    pub(super) view: View,
    pub(super) layout: Layout,
    wires: Vec<Wire>,
}

/// Pixels around all.
pub(super) const MARGIN: f64 = 20.0;

const NARROWEST: f64 = 680.0;

/// Boxes that are wider are edges' goals all along.
const WIDE: f64 = 200.0;

impl Drawn {
    /// Draws a graph; faintly, if something is to be drawn over its edges.
    pub(super) fn new(graph: &Graph, title: &[String], is_faint: bool) -> Drawn {
        let mut view = View::new(graph, is_faint);
        let wires = wires(graph, &mut view);
        let mut layout = Layout::new(&view, &wires);
        let width = layout.width.max(NARROWEST) + 2.0 * MARGIN;
        let mut page = Page::new(width, MARGIN);
        heading(&mut page, title, &counts(graph));
        layout.shift((width - layout.width) / 2.0, page.height);
        page.height += layout.height + 18.0;
        let mut drawn = Drawn {
            page,
            view,
            layout,
            wires,
        };
        drawn.frames(graph);
        drawn.edges(is_faint);
        drawn.boxes(graph);
        drawn
    }

    /// Adds what colours and widths mean, and what is not drawn.
    pub(super) fn end(mut self, more: Vec<(Sample, String)>) -> Page {
        let drawn = self.view.boxes.iter().map(|shown| shown.kind);
        let kinds: std::collections::BTreeSet<NodeKind> = drawn.collect();
        let mut legend = more;
        legend.extend((kinds.into_iter()).map(|of| (Sample::Box(colours::of_node(of)), kind(of).to_owned())));
        legend.extend(entries(&self.wires));
        if self.has_dots() {
            let dots = Sample::Line {
                colour: DOTS,
                width: 1.2,
                dashes: "1.5 3",
            };
            legend.push((dots, "lies in, no edge".to_owned()));
        }
        colours::legend(&mut self.page, &legend, MARGIN);
        if !self.view.left_out.is_empty() {
            let text = format!("not drawn: {}", self.view.left_out.join(", "));
            note(&mut self.page, &text);
        }
        self.page.height += MARGIN;
        self.page
    }

    fn frames(&mut self, graph: &Graph) {
        for at in (0..self.view.boxes.len()).filter(|&at| self.view.is_frame(at)) {
            let shown = &self.view.boxes[at];
            let place = self.layout.at[at];
            frame(
                &mut self.page,
                place,
                shown.kind,
                shown.alike,
                &about(graph, shown.node),
            );
            let within = place.inner(1.0);
            let text = Letters::BOLD.cut(&shown.lines.join("  "), place.width - 20.0);
            self.page.label(
                &text,
                (place.x + 10.0, place.y + 7.0),
                Letters::BOLD,
                Some(within),
            );
        }
    }

    fn boxes(&mut self, graph: &Graph) {
        for at in (0..self.view.boxes.len()).filter(|&at| !self.view.is_frame(at)) {
            let shown = &self.view.boxes[at];
            let place = self.layout.at[at];
            frame(
                &mut self.page,
                place,
                shown.kind,
                shown.alike,
                &about(graph, shown.node),
            );
            let height = Letters::PLAIN.height();
            let first = place.y + (place.height - height * shown.lines.len() as f64) / 2.0;
            for (line, text) in shown.lines.iter().enumerate() {
                let letters = match line {
                    0 => Letters::BOLD,
                    _ if text.starts_with('×') => Letters::BOLD,
                    _ => Letters::FAINT,
                };
                let top = first + height * line as f64;
                self.page.centred(text, place.centre(), top, letters, Some(place));
            }
        }
    }

    fn edges(&mut self, is_faint: bool) {
        let share = if is_faint { "0.4" } else { "0.9" };
        for (parent, child) in self.dots() {
            let commands = self.down(parent, child);
            let line = Shape::path(&commands).stroke(DOTS, 1.2);
            self.page.add(dashed(line, "1.5 3"), "");
        }
        for wire in &self.wires {
            let shape = self
                .shape(wire)
                .stroke(colours::of_link(wire.kind), colours::width(wire.widest()));
            let shape = dashed(shape, wire.dashes()).word("stroke-opacity", share);
            self.page.add(shape, &wire.about);
        }
    }

    /// Boxes that lie in another, not an outermost, without an edge from one to the other.
    fn dots(&self) -> Vec<(usize, usize)> {
        let joined: std::collections::HashSet<[usize; 2]> = self.wires.iter().map(|wire| wire.ends).collect();
        let boxes = self.view.boxes.iter().enumerate();
        boxes
            .filter_map(|(at, shown)| Some((shown.parent?, at)))
            .filter(|&(parent, at)| !self.view.is_frame(parent) && !joined.contains(&[parent, at]))
            .collect()
    }

    fn has_dots(&self) -> bool {
        !self.dots().is_empty()
    }

    fn shape(&self, wire: &Wire) -> Shape {
        let [one, other] = wire.ends;
        if self.view.boxes[other].parent == Some(one) {
            return Shape::path(&self.down(one, other));
        }
        let [a, b] = [self.layout.at[one], self.layout.at[other]];
        if self.layout.rows[one] == self.layout.rows[other] {
            let (left, right) = if a.x <= b.x { (a, b) } else { (b, a) };
            return match self.layout.are_straight(wire.ends) {
                true => {
                    let middle = left.y + left.height.min(right.height) / 2.0;
                    let middle = middle.min(left.y + 20.0);
                    Shape::line((left.right(), middle), (right.x, middle))
                }
                false => self.arc(left, right, self.layout.rows[one]),
            };
        }
        let (upper, lower) = if a.y < b.y { (a, b) } else { (b, a) };
        let towards = |of: Rect, other: Rect| {
            let most = (of.width / 2.0 - 8.0).max(0.0);
            // Edges leave a wide box where they are nearest, and a narrow one side by side.
            let goal = match other.width > WIDE {
                true => of.centre().clamp(other.x + 8.0, other.right() - 8.0),
                false => other.centre(),
            };
            let off = goal - of.centre();
            of.centre()
                + match of.width > WIDE {
                    true => off.clamp(-most, most),
                    false => most * off / (off.abs() + 60.0),
                }
        };
        let from = (towards(upper, lower), upper.bottom());
        let to = (towards(lower, upper), lower.y);
        let half = ((to.1 - from.1) / 2.0).max(10.0);
        Shape::curve(from, (from.0, from.1 + half), (to.0, to.1 - half), to)
    }

    /// From a box to one that lies in it: aside just below the former, then down.
    fn down(&self, parent: usize, child: usize) -> String {
        let (upper, lower) = (self.layout.at[parent], self.layout.at[child]);
        let (left, right) = (upper.x + 8.0, upper.right() - 8.0);
        let x = lower.centre();
        let from = x.clamp(left.min(right), right.max(left));
        let y = upper.y + self.row_height(parent);
        let turn = (y + 28.0).min(lower.y);
        let half = (turn - y) / 2.0;
        let pair = super::page::pair;
        format!(
            "M{} L{} C{} {} {} L{}",
            pair((from, upper.bottom())),
            pair((from, y)),
            pair((from, y + half)),
            pair((x, turn - half)),
            pair((x, turn)),
            pair((x, lower.y))
        )
    }

    fn row_height(&self, of: usize) -> f64 {
        let row = self.layout.rows[of];
        let heights = self.layout.rows.iter().zip(&self.layout.at);
        heights
            .filter(|(other, _)| **other == row)
            .fold(0.0, |most, (_, at)| f64::max(most, at.height))
    }

    /// Between two boxes of a row, around those between them. Shorter ones leave a box further out, and so cross no longer ones.
    fn arc(&self, left: Rect, right: Rect, row: i32) -> Shape {
        let is_below = row >= DEVICES;
        let (reach, most) = (right.centre() - left.centre(), self.layout.width.max(1.0));
        let aside = |at: Rect| (at.width / 2.0 - 6.0) * (1.0 - 0.85 * (reach / most).min(1.0));
        let (from, to) = (left.centre() + aside(left), right.centre() - aside(right));
        let depth = self.layout.bend(row, reach) / 0.75;
        let (y, far) = match is_below {
            true => (
                left.bottom().max(right.bottom()),
                left.bottom().max(right.bottom()) + depth,
            ),
            false => (left.y, left.y - depth),
        };
        let starts = if is_below {
            (left.bottom(), right.bottom())
        } else {
            (y, y)
        };
        Shape::curve((from, starts.0), (from, far), (to, far), (to, starts.1))
    }
}

const DOTS: &str = "#8a94a3";

/// Adds a title's lines: the first large, the others plain, and counts.
pub(super) fn heading(page: &mut Page, title: &[String], counts: &str) {
    let space = page.width - 2.0 * MARGIN;
    for (at, line) in title.iter().enumerate() {
        let letters = if at == 0 { Letters::TITLE } else { Letters::PLAIN };
        page.label(&letters.cut(line, space), (MARGIN, page.height), letters, None);
        page.height += letters.height() + 2.0;
    }
    note(page, counts);
    page.height += 12.0;
}

/// Adds lines of words.
pub(super) fn note(page: &mut Page, text: &str) {
    let letters = Letters::FAINT;
    for line in letters.wrap(text, page.width - 2.0 * MARGIN) {
        page.label(&line, (MARGIN, page.height), letters, None);
        page.height += letters.height();
    }
}

/// Draws a box; two behind it if it stands for several.
fn frame(page: &mut Page, at: Rect, of: NodeKind, alike: usize, about: &str) {
    let [fill, border] = colours::of_node(of);
    let behind: &[f64] = if alike > 1 { &[4.0, 2.0] } else { &[] };
    for by in behind {
        let at = Rect {
            x: at.x + by,
            y: at.y + by,
            ..at
        };
        page.add(Shape::rect(at, 4.0).fill(fill).stroke(border, 1.0), "");
    }
    page.add(Shape::rect(at, 4.0).fill(fill).stroke(border, 1.2), about);
}

/// What a node is, and what its source says of it.
fn about(graph: &Graph, node: crate::topo::graph::NodeId) -> String {
    let mut text = format!("{} {}", kind(graph.kind(node)), graph.name(node));
    for (key, value) in graph.attributes(node).take(20) {
        text += &format!(", {key}={value}");
    }
    text += &format!(" [{}]", graph.place(graph.origin(node)));
    Letters::PLAIN.cut(&text, 2000.0)
}
