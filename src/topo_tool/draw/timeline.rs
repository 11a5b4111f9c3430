//! When ranks send in a call, as the simulator has it.

use super::super::simulate::{Asked, Options};
use super::colours::{Sample, legend};
use super::machine::{MARGIN, heading, note};
use super::page::{Letters, Page, Rect, Shape};
use crate::plan::simulate::trace::Span;
use crate::topo::graph::Graph;
use crate::types::Collective;
use std::collections::BTreeSet;

/// Simulates a call by its best algorithm, or the one that is asked for, and draws its messages.
///
/// # Errors
/// If it cannot be simulated, or has more ranks than there is room for.
pub(super) fn draw(
    graph: &Graph,
    name: &str,
    operation: Collective,
    bytes: u64,
    options: &Options,
) -> Result<Page, String> {
    let asked = Asked {
        operation,
        bytes,
        is_unfolded: false,
        is_traced: false,
    };
    let outcome = options.simulate(&asked, Some(graph))?;
    let best = &outcome.rows[0]; // There is no outcome without rows.
    let traced = options.trace(&asked, best.algorithm, Some(graph))?;
    let per_host = outcome.network.ranks_per_host().max(1);
    let call = Call {
        spans: &traced.spans,
        ranks: traced.ranks,
        per_host,
        end: traced.time * 1e15,
    };
    let hosts = match traced.ranks.div_ceil(per_host) {
        1 => "1 host".to_owned(),
        hosts => format!("{hosts} hosts"),
    };
    let title = [
        name.to_owned(),
        format!(
            "{} of {bytes} bytes among {} ranks on {hosts} by {}: {:.2} µs, {:.2} GB/s of bus bandwidth",
            operation.name(),
            traced.ranks,
            best.algorithm.name,
            traced.time * 1e6,
            traced.bus_bandwidth / 1e9,
        ),
    ];
    Ok(picture(&call, &title))
}

/// What happened in a call. Times are femtoseconds.
pub(super) struct Call<'s> {
    /// In the order of ranks.
    pub(super) spans: &'s [Span],
    pub(super) ranks: usize,
    pub(super) per_host: usize,
    pub(super) end: f64,
}

/// A row for each rank, in it a bar for each message from when it is wanted until it has come; those that overlap below one another.
pub(super) fn picture(call: &Call<'_>, title: &[String]) -> Page {
    let mut page = Page::new(NAMES + SPAN + 2.0 * MARGIN, MARGIN);
    let messages = call.spans.len();
    let plural = if messages == 1 { "" } else { "s" };
    heading(
        &mut page,
        title,
        &format!("{messages} message{plural}, each from when it is sent until it has come"),
    );
    let scale = SPAN / call.end.max(1.0);
    let left = MARGIN + NAMES;
    axis(&mut page, call.end, left);
    let top = page.height;
    let mut spans = call.spans;
    let mut bars = Vec::new();
    let mut is_full = false;
    for rank in 0..call.ranks.min(MOST_RANKS) {
        let own = spans.partition_point(|span| span.rank <= rank);
        let (mine, rest) = spans.split_at(own);
        spans = rest;
        is_full |= row(&mut page, &mut bars, call, rank, mine, scale);
    }
    grid(&mut page, call.end, left, top);
    for (at, text, colour) in bars {
        page.add(Shape::rect(at, 1.5).fill(colour), &text);
        let letters = Letters {
            size: 9.0,
            colour: "#ffffff",
            ..Letters::PLAIN
        };
        let is_one = at.height >= letters.height() && letters.width(&text) + 4.0 <= at.width;
        if is_one {
            let top = at.y + (at.height - letters.height()) / 2.0;
            page.centred(&text, at.centre(), top, letters, Some(at));
        }
    }
    page.height += 12.0;
    if is_full {
        let text =
            format!("of more than {MOST_LINES} messages of a rank at once the last line has all others");
        note(&mut page, &text);
    }
    let more = call.ranks.saturating_sub(MOST_RANKS);
    if more > 0 {
        note(&mut page, &format!("not drawn: {more} more ranks"));
        page.height += 8.0;
    }
    let kinds: BTreeSet<bool> = call
        .spans
        .iter()
        .filter_map(|span| is_local(call, span))
        .collect();
    let entries: Vec<_> = kinds
        .into_iter()
        .map(|is_local| {
            (
                Sample::Box([colour(is_local), colour(is_local)]),
                words(is_local).to_owned(),
            )
        })
        .collect();
    legend(&mut page, &entries, MARGIN);
    page.height += MARGIN;
    page
}

/// Whether a message stays in its host; `None` if it does not say to whom it is.
fn is_local(call: &Call<'_>, span: &Span) -> Option<bool> {
    let peer: usize = span.label.strip_prefix("to ")?.parse().ok()?;
    Some(peer / call.per_host == span.rank / call.per_host)
}

fn colour(is_local: bool) -> &'static str {
    if is_local { "#2465ae" } else { "#b4480a" }
}

fn words(is_local: bool) -> &'static str {
    if is_local {
        "to a rank of this host"
    } else {
        "to another host"
    }
}

/// Adds a rank's name, and finds the bars of its messages; says whether there are more at once than lines.
fn row(
    page: &mut Page,
    bars: &mut Vec<(Rect, String, &'static str)>,
    call: &Call<'_>,
    rank: usize,
    spans: &[Span],
    scale: f64,
) -> bool {
    if rank > 0 && rank.is_multiple_of(call.per_host) {
        let y = page.height + 1.0;
        let line = Shape::line((MARGIN, y), (page.width - MARGIN, y));
        page.add(line.stroke("#b9c0ca", 1.0), "");
        page.height += 4.0;
    }
    // Each line has bars that do not overlap: where its last one ends.
    let mut spans: Vec<&Span> = spans.iter().collect();
    spans.sort_by_key(|span| (span.begin, span.end, span.channel));
    let mut ends: Vec<u64> = Vec::new();
    let mut lines: Vec<(usize, &Span)> = Vec::new();
    let mut is_full = false;
    for span in spans {
        let free = ends.iter().position(|&end| end <= span.begin);
        let line = match free {
            Some(line) => line,
            None if ends.len() < MOST_LINES => {
                ends.push(0);
                ends.len() - 1
            }
            None => {
                is_full = true;
                MOST_LINES - 1
            }
        };
        ends[line] = ends[line].max(span.end);
        lines.push((line, span));
    }
    let height = match ends.len() {
        0 | 1 => 14.0,
        2 => 12.0,
        3 | 4 => 7.0,
        _ => 4.0,
    };
    let all = (height + 1.0) * ends.len().max(1) as f64;
    let letters = Letters::PLAIN;
    let y = page.height + (all - letters.height()).max(0.0) / 2.0;
    page.label(&format!("rank {rank}"), (MARGIN, y), letters, None);
    // What is too thin to be seen apart is one bar.
    lines.sort_by_key(|(line, span)| (*line, span.begin));
    let first = bars.len();
    for (line, span) in lines {
        let (begin, end) = (span.begin as f64 * scale, span.end as f64 * scale);
        let at = Rect {
            x: MARGIN + NAMES + begin,
            y: page.height + (height + 1.0) * line as f64,
            width: (end - begin).max(THINNEST),
            height,
        };
        let colour = colour(is_local(call, span).unwrap_or(true));
        match bars[first..].last_mut() {
            Some((last, text, of)) if last.y == at.y && *of == colour && at.x < last.x + THINNEST => {
                last.width = last.width.max(at.right() - last.x);
                *text = "several messages".to_owned();
            }
            _ => bars.push((at, span.label.clone(), colour)),
        }
    }
    page.height += all.max(letters.height()) + 3.0;
    is_full
}

/// Where times are written.
fn axis(page: &mut Page, end: f64, left: f64) {
    let letters = Letters::FAINT;
    for (time, text) in ticks(end) {
        let x = left + time * SPAN / end.max(1.0);
        let x = x.min(page.width - MARGIN / 2.0 - letters.width(&text) / 2.0);
        page.centred(&text, x, page.height, letters, None);
    }
    page.height += letters.height() + 6.0;
}

fn grid(page: &mut Page, end: f64, left: f64, top: f64) {
    for (time, _) in ticks(end) {
        let x = left + time * SPAN / end.max(1.0);
        let line = Shape::line((x, top - 4.0), (x, page.height)).stroke("#dde1e7", 1.0);
        page.add(line, "");
    }
}

/// Round times up to an end, about eight.
fn ticks(end: f64) -> Vec<(f64, String)> {
    let mut step: f64 = 1e6; // A nanosecond.
    let mut factors = [2.0, 2.5, 2.0].iter().cycle();
    while end / step > 9.0 {
        step *= factors.next().unwrap_or(&2.0);
    }
    let digits = match step {
        _ if step < 1e8 => 3,
        _ if step < 1e9 => 1,
        _ => 0,
    };
    let ticks = (0..)
        .map(|at| step * f64::from(at))
        .take_while(|time| *time <= end);
    ticks
        .map(|time| (time, format!("{:.digits$} µs", time * 1e-9)))
        .collect()
}

/// Pixels of ranks' names, and of the time.
const NAMES: f64 = 76.0;
const SPAN: f64 = 1100.0;
const THINNEST: f64 = 0.8;

const MOST_RANKS: usize = 128;

/// Lines of a rank.
const MOST_LINES: usize = 12;
