//! What is printed: header, table, footer.

use super::{
    footprint::Footprints,
    report::{Job, Measured, Placement, Row},
    setup::Setup,
    size::readable,
};
use crate::{sys::environment, topo::host::Host};

const PLACEMENTS: [Placement; 2] = [Placement::OutOfPlace, Placement::InPlace];

/// A p99 of so many medians is worth a word.
const SPREAD: f64 = 10.0;

/// The lines above the rows.
pub(super) fn header(setup: &Setup, host: &Host, transport: &str) -> String {
    let job = &setup.job;
    let mut lines = vec![
        format!("# ccl-perf {}", env!("CARGO_PKG_VERSION")),
        format!("# ranks      {}, {}", job.ranks, origin(setup)),
        format!("# transport  {transport}"),
        format!("# algorithm  {}", algorithm(job)),
        format!("# cpu        {}, {} usable cores", host.cpu, host.cpus),
        format!(
            "# memory     {} available",
            host.memory_available.map_or("unknown".to_owned(), readable)
        ),
        format!("# check      {}", if job.check { "on" } else { "off" }),
        format!("# samples    {}", samples(job)),
    ];
    lines.extend(setup.notes.iter().map(|note| format!("# note       {note}")));
    lines.push("#".to_owned());
    let [groups, names, units] = column_names(job.overlap);
    let (more_names, more_units) = match job.predict {
        true => ("  predicted   factor", "       (us)  (times)"),
        false => ("", ""),
    };
    let units = match job.predict {
        true => format!("{units:<width$}{more_units}", width = names.len()),
        false => units,
    };
    lines.extend([groups, names + more_names, units]);
    lines.join("\n")
}

fn origin(setup: &Setup) -> String {
    match &setup.launcher {
        Some(launcher) => format!("started by {launcher}"),
        None if setup.job.threads => "threads of one process on this machine".to_owned(),
        None => "processes on this machine".to_owned(),
    }
}

fn algorithm(job: &Job) -> String {
    match &job.algorithm {
        Some(name) => format!("{name}, as told by --algo"),
        None if !job.has_algorithms() => "none: send and receive have no algorithms".to_owned(),
        None => match environment::text("CCL_ALGO") {
            Some(said) => format!("{said}, as told by CCL_ALGO; in column algo"),
            None => "the library's choice at each size, in column algo".to_owned(),
        },
    }
}

fn samples(job: &Job) -> String {
    let count = job
        .iterations
        .map_or("as many as fit 0.2 s".to_owned(), |count| count.to_string());
    let what = match job.overlap {
        true => "pure, total and compute are medians",
        false => "time is the median",
    };
    let shortest = job.runs.iter().map(|run| run.operation.shortest_sample());
    let shortest = shortest.min().unwrap_or_default();
    let shortest = shortest.as_micros();
    format!(
        "{count} per size, each a batch of calls of at least {shortest} us, and 8 or more within 1 ms; {what}"
    )
}

fn column_names(overlap: bool) -> [String; 3] {
    let (names, units) = match overlap {
        true => (
            "   pure(us)   total(us)  compute(us)     left      osu  #wrong",
            "                               alone      (%)      (%)        ",
        ),
        false => (
            "   time(us)         p99    algbw    busbw  #wrong",
            "     median             (GB/s)   (GB/s)        ",
        ),
    };
    let width = names.len();
    let group = |name: &str| format!("  {:^width$}", format!("----- {name} -----"));
    let left = |bytes, size, count, dtype, op, root, algo| {
        format!("{bytes:>12} {size:>8} {count:>12} {dtype:>10} {op:>6} {root:>4} {algo:>8}")
    };
    [
        format!(
            "#{}{}{}",
            &left("", "", "", "", "", "", "")[1..],
            group("out of place"),
            group("in place").trim_end()
        ),
        format!(
            "#{}  {names}  {names}",
            &left("bytes", "size", "count", "type", "redop", "root", "algo")[1..]
        ),
        format!(
            "#{}  {units}  {}",
            &left("", "", "(elements)", "", "", "", "")[1..],
            units.trim_end()
        ),
    ]
}

/// One line.
pub(super) fn row(row: &Row) -> String {
    let root = row.root.map_or("-1".to_owned(), |root| root.to_string());
    let left = format!(
        "{:>12} {:>8} {:>12} {:>10} {:>6} {root:>4} {:>8}",
        row.bytes,
        readable(row.bytes),
        row.count,
        row.dtype,
        row.op.as_deref().unwrap_or("none"),
        row.algorithm.as_deref().unwrap_or("-"),
    );
    let [out_of_place, in_place] =
        PLACEMENTS.map(|placement| row.placement(placement).map_or(absent(row), measured));
    let predicted = row.predicted_us.map_or(String::new(), |us| {
        let factor = row.predicted_factor().map_or("-".to_owned(), digits);
        format!(" {:>10} {factor:>8}", digits(us))
    });
    format!("{left}  {out_of_place}  {in_place}{predicted}")
}

fn measured(measured: &Measured) -> String {
    let wrong = measured.wrong.map_or("N/A".to_owned(), |wrong| wrong.to_string());
    if let Some(overlap) = &measured.overlap {
        return format!(
            "{:>11} {:>11} {:>12} {:>8.1} {:>8.1} {wrong:>7}",
            digits(measured.stats.median_us),
            digits(overlap.total_us),
            digits(overlap.compute_us),
            overlap.left_percent,
            overlap.osu_percent,
        );
    }
    format!(
        "{:>11} {:>11} {:>8} {:>8} {wrong:>7}",
        digits(measured.stats.median_us),
        digits(measured.stats.p99_us),
        digits(measured.algorithm_bandwidth),
        digits(measured.bus_bandwidth),
    )
}

/// Of a placement that was not measured.
fn absent(row: &Row) -> String {
    let has_overlap =
        |placement| (row.placement(placement)).is_some_and(|measured| measured.overlap.is_some());
    match PLACEMENTS.into_iter().any(has_overlap) {
        true => format!("{0:>11} {0:>11} {0:>12} {0:>8} {0:>8} {0:>7}", "-"),
        false => format!("{0:>11} {0:>11} {0:>8} {0:>8} {0:>7}", "-"),
    }
}

/// Few digits, none of them noise.
fn digits(value: f64) -> String {
    let decimals = match value {
        v if v < 10.0 => 3,
        v if v < 100.0 => 2,
        v if v < 10_000.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// What the rows add up to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Summary {
    /// `None` where nothing was checked.
    pub(super) wrong: Option<u64>,
    /// In GB/s, over all sizes and placements.
    pub(super) bus_bandwidth: f64,
}

impl Summary {
    pub(super) fn of(rows: &[Row]) -> Summary {
        let all = || {
            rows.iter()
                .flat_map(|row| PLACEMENTS.into_iter().filter_map(|p| row.placement(p)))
        };
        let count = all().count().max(1) as f64;
        Summary {
            wrong: all().map(|measured| measured.wrong).sum(),
            bus_bandwidth: all().map(|measured| measured.bus_bandwidth).sum::<f64>() / count,
        }
    }
}

/// The lines below the rows.
pub(super) fn footer(
    summary: &Summary,
    footprints: Option<Footprints>,
    rows: &[Row],
    ranks_here: usize,
    host: &Host,
) -> String {
    let wrong = match summary.wrong {
        None => "N/A (not checked)".to_owned(),
        Some(0) => "0 OK".to_owned(),
        Some(wrong) => format!("{wrong} FAILED"),
    };
    let mut lines = vec![
        format!("# Out of bounds values : {wrong}"),
        format!("# Avg bus bandwidth    : {}", digits(summary.bus_bandwidth)),
    ];
    if let Some(Footprints { mean, most }) = footprints {
        let [took, longest] = [mean, most].map(|one| digits(one.init_us as f64 / 1000.0));
        lines.push(format!("# Init of a rank       : {took} ms, {longest} at most"));
        if mean.share_bytes > 0 {
            let [resident, all] = [mean, most].map(|one| readable(one.resident_bytes));
            let [share, largest] = [mean, most].map(|one| readable(one.share_bytes));
            lines.push(format!(
                "# Memory of a rank     : {resident} resident, {all} at most; {share} its share of them, {largest} at most"
            ));
        }
    }
    lines.extend(missed(rows));
    lines.extend(hint(rows, ranks_here, host));
    lines.join("\n")
}

/// How far from what was measured the planner's predictions are, where it was asked.
fn missed(rows: &[Row]) -> Option<String> {
    let mut factors: Vec<f64> = (rows.iter().filter_map(Row::predicted_factor))
        .map(|factor| factor.max(1.0 / factor))
        .collect();
    factors.sort_by(f64::total_cmp);
    let (median, most) = (factors.get(factors.len() / 2)?, factors.last()?);
    Some(format!(
        "# Predicted            : a factor of {median:.2} off in the median, {most:.2} at most"
    ))
}

/// What to do about samples that differ much.
fn hint(rows: &[Row], ranks_here: usize, host: &Host) -> Option<String> {
    let spread = |measured: &Measured| measured.stats.p99_us / measured.stats.median_us;
    let (row, measured) = rows
        .iter()
        .flat_map(|row| {
            PLACEMENTS
                .into_iter()
                .filter_map(move |p| Some((row, row.placement(p)?)))
        })
        .filter(|(_, measured)| measured.stats.median_us > 0.0)
        .max_by(|(_, a), (_, b)| spread(a).total_cmp(&spread(b)))?;
    if spread(measured) < SPREAD {
        return None;
    }
    let advice = if ranks_here > host.cpus {
        format!("ranks wait for a core; try {} ranks on a host", host.cpus.max(2))
    } else {
        "something else may use the cores; stop it, or raise -n".to_owned()
    };
    Some(format!(
        "# note       p99 is {:.0}x the median at {}: {advice}",
        spread(measured),
        readable(row.bytes)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::perf::{args::Args, footprint::Footprint, overlap::Overlap, stats::Stats};

    fn host() -> Host {
        Host {
            cpu: "test".to_owned(),
            cpus: 4,
            memory_available: Some(1 << 34),
        }
    }

    fn setup(line: &str) -> Setup {
        let words = std::iter::once("ccl-perf").chain(line.split_whitespace());
        match Args::read(words.map(Into::into)) {
            Ok(args) => Setup::new(args, &host()).unwrap(),
            Err(_) => panic!("{line}"),
        }
    }

    fn result(samples: &mut [u64], wrong: Option<u64>) -> Measured {
        Measured {
            stats: Stats::of(samples, 1),
            algorithm_bandwidth: 2.0,
            bus_bandwidth: 3.0,
            wrong,
            overlap: None,
        }
    }

    fn overlapped(wrong: Option<u64>) -> Measured {
        let us = 123_456_789.0;
        Measured {
            overlap: Some(Overlap {
                total_us: us,
                compute_us: us,
                meanwhile_us: us,
                left_percent: 100.0,
                osu_percent: 12.5,
            }),
            ..result(&mut [123_456_789_000], wrong)
        }
    }

    fn example(out_of_place: Option<Measured>, in_place: Option<Measured>) -> Row {
        Row {
            operation: "allreduce".to_owned(),
            bytes: 1 << 30,
            count: 1 << 28,
            dtype: "float8e4m3".to_owned(),
            op: Some("bitand".to_owned()),
            root: None,
            skew: None,
            algorithm: Some("direct".to_owned()),
            predicted_us: None,
            out_of_place,
            in_place,
        }
    }

    #[test]
    fn predictions_stand_beside_what_was_measured() {
        let setup = setup("allreduce --ranks 2 --predicted");
        let header = header(&setup, &host(), "shm");
        let names = header.lines().rev().nth(1).unwrap();
        let plain = example(Some(result(&mut [2_000_000], None)), None);
        let line = Row {
            predicted_us: Some(500.0),
            ..plain
        };
        let text = row(&line);
        assert!(
            names.ends_with("predicted   factor") && text.ends_with("500.0    0.250"),
            "{text}"
        );
        assert_eq!(text.len(), names.len(), "\n{names}\n{text}");
        assert_eq!(
            missed(&[line]).unwrap(),
            "# Predicted            : a factor of 4.00 off in the median, 4.00 at most"
        );
    }

    #[test]
    fn columns_are_aligned() {
        let plain = result(&mut [123_456_789_000], Some(0));
        for (overlap, measured) in [(false, plain), (true, overlapped(Some(0)))] {
            let full = || Some(measured.clone());
            let names = &column_names(overlap)[1];
            for line in [
                example(full(), full()),
                example(full(), None),
                example(None, full()),
            ] {
                let line = row(&line);
                assert_eq!(line.len(), names.len(), "\n{names}\n{line}");
                assert!(
                    line.split_whitespace()
                        .next()
                        .is_some_and(|bytes| bytes == "1073741824")
                );
            }
        }
    }

    #[test]
    fn an_overlap_is_told_instead_of_bandwidths() {
        let line = row(&example(Some(overlapped(None)), None));
        let words: Vec<&str> = line.split_whitespace().skip(7).collect();
        assert_eq!(
            words[..6],
            ["123456789", "123456789", "123456789", "100.0", "12.5", "N/A"]
        );
        assert_eq!(words[6..], ["-"; 6]);
    }

    #[test]
    fn every_header_line_is_a_comment() {
        let text = header(&setup("allreduce --ranks 9 --algo ring"), &host(), "shm");
        assert!(text.lines().all(|line| line.starts_with('#')), "{text}");
        for part in [
            "ranks      9",
            "shm",
            "ring",
            "test, 4 usable",
            "check      on",
            "take turns",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn the_footer_sums_up_and_says_what_to_do() {
        let rows = [
            example(Some(result(&mut [1000; 99], Some(0))), None),
            example(None, Some(result(&mut [1000, 1000, 50_000], Some(3)))),
        ];
        let each = [[1000, 2 << 20, 1 << 20], [2000, 4 << 20, 1 << 20]].map(Footprint::of);
        let footprints = Footprints::of(&each).unwrap();
        let summary = Summary::of(&rows);
        assert_eq!(
            summary,
            Summary {
                wrong: Some(3),
                bus_bandwidth: 3.0
            }
        );
        let text = footer(&summary, Some(footprints), &rows, 4, &host());
        assert!(
            text.contains("3 FAILED") && text.contains("50x") && text.contains("-n"),
            "{text}"
        );
        assert!(
            text.contains("# Init of a rank       : 1.500 ms, 2.000 at most"),
            "{text}"
        );
        let memory = "# Memory of a rank     : 3M resident, 4M at most; 1M its share of them, 1M at most";
        assert!(text.contains(memory), "{text}");
        // What counts are the ranks of this host.
        let text = footer(&summary, Some(footprints), &rows, 5, &host());
        assert!(text.contains("try 4 ranks on a host"), "{text}");
        let text = footer(&Summary::of(&rows[..1]), None, &rows[..1], 4, &host());
        assert!(text.contains("0 OK") && !text.contains("note"), "{text}");
        let unchecked = [example(Some(result(&mut [1], None)), None)];
        assert_eq!(Summary::of(&unchecked).wrong, None);
        assert_eq!(
            Summary::of(&[]),
            Summary {
                wrong: Some(0),
                bus_bandwidth: 0.0
            }
        );
    }
}
