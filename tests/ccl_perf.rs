//! `ccl-perf` as its users meet it: the table, the files, the mistakes, and what is left after a violent end.

#[path = "common/compile.rs"]
#[allow(dead_code)]
mod compile;

use rustix::{
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    pipe::pipe,
    process::{Pid, Signal, kill_process},
};
use std::{
    ffi::OsStr,
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::ffi::OsStrExt,
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

/// Far more than anything here takes, unless it hangs.
const SOON: Duration = Duration::from_secs(20);

fn ccl_perf(line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ccl-perf"));
    command.args(line.split_whitespace()).stdin(Stdio::null());
    command
}

fn output(line: &str) -> Output {
    ccl_perf(line).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Runs what must succeed; gives the rows as words.
fn rows(line: &str) -> Vec<Vec<String>> {
    let output = output(line);
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{line}\n{out}\n{err}");
    assert_eq!(err, "", "{line}: no progress bar in a pipe");
    assert!(out.contains("# Out of bounds values : 0 OK"), "{line}\n{out}");
    out.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

fn first_column(line: &str) -> Vec<u64> {
    rows(line).iter().map(|row| row[0].parse().unwrap()).collect()
}

/// Runs ranks that share memory with this `CCL_TUNE`; gives what rank 0 logs. Results are checked.
fn log_tuned(tune: &str, line: &str) -> String {
    log_of(tune, "info", line)
}

fn log_of(tune: &str, debug: &str, line: &str) -> String {
    let mut command = ccl_perf(line);
    let output = command
        .env("CCL_TUNE", tune)
        .env("CCL_DEBUG", debug)
        .env("CCL_EXPLAIN", "1")
        .output()
        .unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{err}");
    assert!(out.contains("# Out of bounds values : 0 OK"), "{out}");
    err
}

#[test]
fn first_calls_try_algorithms_and_later_ones_go_by_what_rank_0_decides() {
    let decided = |log: &str| log.matches("tune: allreduce of about 4096 bytes by ").count();
    let log = log_tuned("online", "allreduce -n 80 -w 5 -b 4K -e 4K --ranks 3");
    assert_eq!(decided(&log), 3, "{log}"); // each rank's
    let explained = |log: &str| log.matches("; the fastest of those tried; ").count();
    assert_eq!(explained(&log), 1, "{log}"); // by rank 0, once more
    let log = log_tuned("online", "allreduce -n 80 -w 5 -b 4K -e 4K --ranks 3 --algo ring");
    assert_eq!(decided(&log), 0, "what is forced is not tried: {log}");
    assert_eq!(explained(&log), 0, "{log}");
    let log = log_tuned("off", "allreduce -n 80 -w 5 -b 4K -e 4K --ranks 3");
    assert_eq!(decided(&log), 0, "{log}");
}

/// Of several lengths that are tried together each is first called by another algorithm.
#[test]
fn a_call_is_said_to_go_by_what_it_goes_by() {
    let log = log_of(
        "online",
        "trace",
        "allreduce -n 1 -w 1 -b 4K -e 6K -i 256 --ranks 3",
    );
    let mut told = 0;
    for plan in log.split("ccl: plan: allreduce of ").skip(1) {
        let chosen = plan
            .split(" -> ")
            .nth(1)
            .and_then(|row| row.split_whitespace().next());
        let calls = plan
            .lines()
            .filter(|line| line.contains(" rank 0/3 TRACE call: call #"));
        let call = calls
            .map(|line| line.split(" allreduce(").nth(1))
            .next()
            .flatten();
        let goes_by = call.and_then(|call| call.split(" by ").nth(1)?.split(',').next());
        if goes_by.is_some() {
            assert_eq!(chosen, goes_by, "{plan}");
            told += 1;
        }
    }
    assert!(told > 1, "{log}");
}

#[test]
fn a_moment_of_init_measures_where_that_is_asked_for() {
    let log = log_tuned("probe", "allreduce -n 3 -b 4K -e 4K --ranks 2");
    assert_eq!(log.matches("init: probed in ").count(), 1, "rank 0 alone: {log}");
}

#[test]
fn mistakes_are_one_line_with_status_2() {
    let cases = [
        ("", "<OP>"),
        ("allgatherx", "allreduce"),
        ("allreduce -b 2M -e 1M", "-b"),
        ("allreduce -b 1Q", "-b"),
        ("allreduce -f 1", "-f"),
        ("allreduce -i 0", "-i"),
        ("allreduce -d float31", "float32"),
        ("allreduce -o bitor -d float32", "-o"),
        ("broadcast -r 3 --ranks 3", "-r"),
        ("gather -r 3 --ranks 3", "-r 3"),
        ("scatter -r x", "-r"),
        ("reducescatter -o bitor -d float32", "-o bitor"),
        ("alltoall --ranks 3 -e 100T", "lower -e"),
        ("allgather --algo guess", "--algo guess"),
        ("allreduce --ranks 0", "--ranks"),
        ("allreduce --ranks 2,x", "--ranks"),
        ("reduce --explain -r all --ranks 4294967296", "from 1 to 8192"),
        ("allreduce --ranks 2,3 --json x", "--ranks one number"),
        ("allreduce --ranks 3 -e 100T", "lower -e"),
        ("allreduce -e 100T", "lower -e"),
        ("allreduce --algo guess", "ring"),
        ("broadcast --algo ring", "tree or knomial"),
        ("allreduce --transport pigeon", "shm"),
        ("sendrecv --in-place", "--in-place: sendrecv has no form in place"),
        (
            "sendrecv --algo ring",
            "--algo ring: send and receive have no algorithms",
        ),
        (
            "sendrecv --explain",
            "--explain: send and receive have no algorithms",
        ),
    ];
    for (line, part) in cases {
        let output = output(line);
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {err}");
        assert!(err.contains(part) && err.lines().count() == 1, "{line}: {err}");
        assert_eq!(text(&output.stdout), "", "{line}");
    }
}

#[test]
fn a_file_that_cannot_be_written_is_found_before_the_run() {
    let output = output("allreduce --ranks 2 --json /nowhere/x.json");
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("--json /nowhere/x.json"));
    assert_eq!(text(&output.stdout), "");
}

#[test]
fn one_file_by_two_names_is_found_before_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("out"), folder.path().join("link"));
    std::os::unix::fs::symlink(".", &link).unwrap();
    for kept in [None, Some("kept")] {
        kept.iter().for_each(|text| fs::write(&file, text).unwrap());
        let files = format!("--json {} --csv {}/out", file.display(), link.display());
        let output = output(&format!("allreduce --ranks 2 -b 8 -e 8 -n 1 {files}"));
        assert_eq!(
            (output.status.code(), text(&output.stdout).as_str()),
            (Some(1), "")
        );
        let err = text(&output.stderr);
        assert!(
            err.contains("name the same file") && err.lines().count() == 1,
            "{err}"
        );
        assert_eq!(fs::read_to_string(&file).ok().as_deref(), kept);
    }
}

#[test]
fn help_and_version_and_list() {
    for (line, part) in [
        ("--help", "--ranks"),
        ("--version", "ccl-perf 0."),
        ("--list", "ring"),
        ("--list", "sendrecv, which has no algorithms"),
    ] {
        let output = output(line);
        assert_eq!(output.status.code(), Some(0), "{line}");
        assert!(text(&output.stdout).contains(part), "{line}");
    }
}

#[test]
fn a_table_of_all_reduce() {
    let rows = rows("allreduce -b 8 -e 1M -f 8 --ranks 3 -n 5");
    let bytes: Vec<&str> = rows.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(bytes, ["8", "64", "512", "4096", "32768", "262144"]);
    for row in rows {
        // bytes size count type redop root algo, twice time p99 algbw busbw wrong
        assert_eq!(row.len(), 7 + 2 * 5, "{row:?}");
        assert_eq!(
            (row[3].as_str(), row[4].as_str(), row[5].as_str()),
            ("float32", "sum", "-1")
        );
        assert_eq!((row[11].as_str(), row[16].as_str()), ("0", "0"));
    }
}

#[test]
fn a_barrier_has_a_time_and_no_bytes() {
    let rows = rows_unchecked("barrier --ranks 3 -n 5");
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!(row[..6], ["0", "0", "0", "none", "none", "-1"]);
    assert!(row[7].parse::<f64>().unwrap() > 0.0);
    assert_eq!((row[11].as_str(), row[12].as_str()), ("N/A", "-"));
}

#[test]
fn the_choice_is_explained() {
    let said = |line| {
        let output = output(line);
        assert_eq!(
            (output.status.code(), text(&output.stderr)),
            (Some(0), String::new()),
            "{line}"
        );
        text(&output.stdout)
    };
    let text = said("allreduce --explain --ranks 5000 -b 8 -e 8M -f 1024");
    for part in [
        "5000 ranks",
        "8 (2 x float32)",
        "8K",
        "8M",
        "doubling",
        "direct",
        "ring",
        "least time",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches("-> ").count(), 3, "{text}");
    let text = said("broadcast --explain --ranks 4 -r 2 -b 1K -e 1K --algo chain");
    assert!(text.contains("-> chain") && text.contains("forced; "), "{text}");
    assert!(said("barrier --explain").contains("-> "));
    let text = said("alltoall --explain --ranks 3 -b 1K -e 1K");
    assert!(text.contains("alltoall 1020 (85 x float32)"), "{text}");
}

#[test]
fn broadcast_from_every_root_and_odd_sizes() {
    for row in rows("broadcast -b 1 -e 100001 -f 99 --ranks 3 -r all -d bf16 -n 3") {
        assert_eq!(row[4], "none");
    }
    assert_eq!(
        first_column("broadcast -b 0 -e 9 -i 3 --ranks 2 -r 1 -n 1 --in-place"),
        [0, 4, 8]
    );
}

#[test]
fn sizes_are_divided_between_the_ranks() {
    for operation in ["allgather", "reducescatter", "gather", "scatter", "alltoall"] {
        for ranks in [2, 3, 4, 7] {
            // Less than an element for each rank, one, some, and several messages' worth.
            let found = rows(&format!(
                "{operation} -b 1 -e 3000000 -f 131 --ranks {ranks} -n 2 -w 0 -r {}",
                ranks - 1
            ));
            let wanted = [1, 131, 17161, 2_248_091].map(|size| size / 4 / ranks);
            assert_eq!(found.len(), wanted.len(), "{operation} {ranks}");
            for (row, count) in found.iter().zip(wanted) {
                let sizes = (row[0].parse(), row[2].parse());
                assert_eq!(sizes, (Ok(4 * ranks * count), Ok(count)), "{row:?}");
            }
        }
    }
}

#[test]
fn blocks_of_any_length() {
    for operation in ["allgatherv", "reducescatterv", "gatherv", "scatterv", "alltoallv"] {
        for skew in ["balanced", "hot", "zero", "random:5"] {
            for ranks in [1, 4] {
                // Of a few elements, of a message's, and of several tiles.
                let found = rows(&format!(
                    "{operation} --skew {skew} -b 60 -e 2000000 -f 180 --ranks {ranks} -n 2 -w 0"
                ));
                let wanted = [60, 10_800, 1_944_000].map(|size| size / 4 / ranks);
                let counts = found.iter().map(|row| row[2].parse().unwrap());
                assert_eq!(counts.collect::<Vec<usize>>(), wanted, "{operation} {skew}");
            }
        }
    }
    // Where each rank has something for itself alone, nothing moves between them.
    let alone = rows("alltoallv --skew zero -b 1M -e 1M --ranks 2 -n 2 -w 0");
    assert!(alone[0][9] != "0.000" && alone[0][10] == "0.000", "{alone:?}");
    let mistake = output("alltoallv --in-place");
    assert!(text(&mistake.stderr).contains("--in-place: alltoallv has no form in place"));
}

#[test]
fn messages_to_the_next_rank() {
    for transport in ["auto", "tcp"] {
        for ranks in [1, 2, 5] {
            // Less than an element, one, some that travel ahead, and several messages' worth.
            let found = rows(&format!(
                "sendrecv -b 1 -e 3000000 -f 131 --ranks {ranks} --transport {transport} -n 2 -w 0"
            ));
            let wanted = [1, 131, 17161, 2_248_091].map(|size| size / 4);
            assert_eq!(found.len(), wanted.len(), "{transport} {ranks}");
            for (row, count) in found.iter().zip(wanted) {
                assert_eq!(
                    (row[0].parse(), row[2].parse()),
                    (Ok(4 * count), Ok(count)),
                    "{row:?}"
                );
                assert_eq!(row[4..7], ["none", "-1", "-"], "{row:?}");
                assert_eq!((&row[9], row[11].as_str()), (&row[10], "0"), "{row:?}");
                assert_eq!(row[12..], ["-"; 5], "{row:?}");
            }
        }
    }
}

#[test]
fn files_have_no_algorithm_of_messages() {
    let folder = tempfile::tempdir().unwrap();
    let (json, csv) = (folder.path().join("a.json"), folder.path().join("a.csv"));
    let files = format!("--json {} --csv {}", json.display(), csv.display());
    rows(&format!("send-recv -b 1K -e 1K --ranks 3 -n 2 {files}"));
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let row = &document["rows"][0];
    assert_eq!(row["operation"], "sendrecv");
    assert!(row["algorithm"].is_null() && row["in_place"].is_null(), "{row}");
    let csv = fs::read_to_string(csv).unwrap();
    let lines: Vec<&str> = csv.lines().collect();
    assert_eq!(lines.len(), 2, "{csv}");
    let transport = document["transport"].as_str().unwrap();
    let begin = format!("sendrecv,3,{transport},,out_of_place,1024,256,float32,,,");
    assert!(lines[1].starts_with(&begin), "{csv}");
}

#[test]
fn every_root_and_type() {
    for (operation, ranks) in [("reduce", 4), ("gather", 3), ("scatter", 3), ("scatter", 7)] {
        let found = rows(&format!(
            "{operation} -r all -b 5000 -e 5000 --ranks {ranks} -n 1 -w 0"
        ));
        let roots: Vec<usize> = found.iter().map(|row| row[5].parse().unwrap()).collect();
        assert_eq!(roots, (0..ranks).collect::<Vec<_>>(), "{operation}");
    }
    for operation in ["allgather", "gather", "scatter", "alltoall", "sendrecv"] {
        let line = format!("{operation} -d all -b 5000 -e 5000 --ranks 3 -n 1 -w 0");
        assert_eq!(rows(&line).len(), 14, "{operation}");
    }
}

#[test]
fn every_algorithm_that_is_listed() {
    let list = text(&output("--list").stdout);
    let mut operation = "";
    let mut seen = 0;
    for line in list.lines().take_while(|line| !line.starts_with("types")) {
        match line.strip_prefix("  ") {
            None => operation = line.split(',').next().unwrap(),
            Some(entry) => {
                let name = entry.split_whitespace().next().unwrap();
                let rows = if operation == "barrier" {
                    rows_unchecked
                } else {
                    rows
                };
                for ranks in [1, 2, 5] {
                    rows(&format!(
                        "{operation} --algo {name} -b 4 -e 40K -f 100 --ranks {ranks} -n 3"
                    ));
                }
                seen += 1;
            }
        }
    }
    assert!(seen >= 2, "{list}");
}

#[test]
fn every_type_and_reduction() {
    let rows = rows("allreduce -d all -o all -b 1000 -e 1000 --ranks 4 -n 1 -w 0");
    assert_eq!(rows.len(), 8 * 8 + 6 * 5);
}

#[test]
fn every_reduction_in_every_form() {
    for (operation, ranks) in [
        ("reduce", 2),
        ("reduce", 7),
        ("reducescatter", 2),
        ("reducescatter", 7),
    ] {
        let line = format!("{operation} -d int16,bf16,f64 -o all -b 5000 -e 5000 --ranks {ranks} -n 1 -w 0");
        assert_eq!(rows(&line).len(), 8 + 2 * 5, "{line}");
    }
}

#[test]
fn unchecked_and_one_placement() {
    let rows = rows_unchecked("allreduce --no-check --out-of-place -b 4K -e 4K --ranks 2 -n 2");
    assert_eq!((rows[0][11].as_str(), rows[0][12].as_str()), ("N/A", "-"));
}

fn rows_unchecked(line: &str) -> Vec<Vec<String>> {
    let output = output(line);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    (text(&output.stdout).lines().filter(|line| !line.starts_with('#')))
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

#[test]
fn json_and_csv_say_what_the_table_says() {
    let folder = tempfile::tempdir().unwrap();
    let (json, csv) = (folder.path().join("a.json"), folder.path().join("a.csv"));
    let files = format!("--json {} --csv {}", json.display(), csv.display());
    let table = rows(&format!(
        "broadcast -b 1K -e 4K --ranks 2 -r 1 -n 4 -d int16 --predicted --device shared {files}"
    ));
    let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    let found = document["rows"].as_array().unwrap();
    assert_eq!((table.len(), found.len()), (3, 3));
    assert_eq!(document["ranks"], 2);
    assert_eq!(document["summary"]["wrong"], 0);
    for (row, line) in found.iter().zip(&table) {
        assert_eq!(row["bytes"].to_string(), line[0]);
        assert_eq!(
            (row["type"].as_str(), row["root"].as_u64()),
            (Some("int16"), Some(1))
        );
        let placement = &row["in_place"];
        assert_eq!(placement["samples"], 4);
        let value = |name: &str| placement[name].as_f64().unwrap();
        assert!(value("min_us") <= value("median_us") && value("median_us") <= value("max_us"));
    }
    let arguments = &document["arguments"];
    for (name, wanted) in [
        ("skew", "balanced".into()),
        ("threads", false.into()),
        ("device", "shared".into()),
        ("graph", serde_json::Value::Null),
    ] {
        assert_eq!(arguments[name], wanted, "{name}: {arguments}");
    }
    let csv = fs::read_to_string(csv).unwrap();
    let mut lines = csv.lines();
    assert!(
        lines
            .next()
            .unwrap()
            .ends_with(",predicted_us,graph,threads,device"),
        "{csv}"
    );
    for (line, row) in lines.zip(found.iter().flat_map(|row| [row; 2])) {
        let end = format!(",{},,false,shared", row["predicted_us"]);
        assert!(line.ends_with(&end), "{end}: {line}");
    }
    let fields = csv.lines().next().unwrap().split(',').count();
    assert_eq!(csv.lines().count(), 1 + 2 * 3);
    assert!(csv.lines().all(|line| line.split(',').count() == fields), "{csv}");
}

#[test]
fn every_operation_beside_computation() {
    let folder = tempfile::tempdir().unwrap();
    let (json, csv) = (folder.path().join("a.json"), folder.path().join("a.csv"));
    let files = format!("--json {} --csv {}", json.display(), csv.display());
    let list = text(&output("--list").stdout);
    let names = (list.lines().take_while(|line| !line.starts_with("types")))
        .filter_map(|line| line.split_once(',').filter(|_| !line.starts_with(' ')));
    let mut seen = 0;
    for (operation, _) in names {
        let has_vector = operation != "barrier";
        let run = if has_vector { rows } else { rows_unchecked };
        let table = run(&format!(
            "{operation} --overlap -b 60 -e 300000 -f 4999 --ranks 3 -n 2 -w 1 {files}"
        ));
        assert_eq!(table.len(), 1 + usize::from(has_vector), "{operation}");
        // bytes size count type redop root algo, twice pure total compute left osu wrong
        assert!(table.iter().all(|row| row.len() == 7 + 2 * 6), "{table:?}");
        let document: serde_json::Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
        assert_eq!(document["arguments"]["overlap"], true);
        for (row, line) in document["rows"].as_array().unwrap().iter().zip(&table) {
            let overlap = &row["out_of_place"]["overlap"];
            let value = |name: &str| overlap[name].as_f64().unwrap();
            for share in [value("left_percent"), value("osu_percent")] {
                assert!(share >= 0.0, "{row}");
            }
            assert_eq!(line[10], format!("{:.1}", value("left_percent")));
            assert!(value("total_us") >= value("meanwhile_us"), "{row}");
        }
        let csv = fs::read_to_string(&csv).unwrap();
        let fields = csv.lines().next().unwrap().split(',').count();
        assert!(csv.lines().all(|line| line.split(',').count() == fields), "{csv}");
        assert!(csv.lines().all(|line| !line.ends_with(',')), "{csv}");
        seen += 1;
    }
    assert_eq!(seen, 15, "{list}");
}

/// A run that lasts until it is ended, whose ranks are at work.
struct Running {
    parent: Child,
    /// Process ids by rank.
    ranks: Vec<i32>,
}

impl Running {
    fn start() -> Running {
        let mut parent = ccl_perf("allreduce -b 1M -e 1M -n 10000000 --ranks 3")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // The names of the columns are printed when all ranks have met.
        let mut lines = BufReader::new(parent.stdout.as_mut().unwrap()).lines();
        assert!(
            lines.any(|line| line.unwrap().contains("busbw")),
            "the run did not start"
        );
        let mut ranks: Vec<(usize, i32)> = processes(|words| words.first() == Some(&"ccl-perf"))
            .into_iter()
            .filter(|process| process.parent == parent.id() as i32)
            .map(|process| (process.words[2].parse().unwrap(), process.pid))
            .collect();
        ranks.sort_unstable();
        Running {
            parent,
            ranks: ranks.into_iter().map(|(_, pid)| pid).collect(),
        }
    }

    /// Waits for the parent's end; gives its status and what it said, and makes sure that nobody is left.
    fn end(mut self) -> (std::process::ExitStatus, String) {
        let deadline = Instant::now() + SOON;
        let status = loop {
            if let Some(status) = self.parent.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < deadline, "the parent does not end");
            sleep(Duration::from_millis(10));
        };
        while self.ranks.iter().any(|&pid| alive(pid)) {
            assert!(Instant::now() < deadline, "ranks are left: {:?}", self.ranks);
            sleep(Duration::from_millis(10));
        }
        let mut said = String::new();
        if let Some(stderr) = self.parent.stderr.as_mut() {
            stderr.read_to_string(&mut said).unwrap();
        }
        (status, said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Only for a test that failed; otherwise it has ended and been waited for.
        let _ = self.parent.kill();
        let _ = self.parent.wait();
    }
}

struct Process {
    pid: i32,
    parent: i32,
    words: Vec<String>,
}

fn processes(wanted: impl Fn(&[&str]) -> bool) -> Vec<Process> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: i32| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        let words: Vec<&str> = line.trim_end_matches('\0').split('\0').collect();
        wanted(&words).then_some(())?;
        let words = words.into_iter().map(str::to_owned).collect();
        let parent = field(pid, "PPid:")?.parse().ok()?;
        Some(Process { pid, parent, words })
    })
    .collect()
}

/// Whether the process exists and is no zombie that waits for a machine's first process to notice.
fn alive(pid: i32) -> bool {
    field(pid, "State:").is_some_and(|state| !state.starts_with(['Z', 'X']))
}

fn field(pid: i32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

#[test]
fn a_rank_that_is_killed_is_named() {
    let run = Running::start();
    let victim = run.ranks[1];
    send(victim, Signal::KILL);
    let (status, said) = run.end();
    assert_eq!(status.code(), Some(1), "{said}");
    let death = format!("rank 1 (pid {victim}) was ended by signal 9 (SIGKILL)");
    assert!(said.contains(&death) && said.lines().count() == 1, "{said}");
}

#[test]
fn a_rank_that_cannot_notice_does_not_hold_the_others() {
    let run = Running::start();
    let (victim, stopped) = (run.ranks[1], run.ranks[2]);
    send(stopped, Signal::STOP);
    send(victim, Signal::KILL);
    let (status, said) = run.end();
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("rank 1 (pid {victim})")), "{said}");
    assert!(said.contains("did not notice within 500ms: ended"), "{said}");
}

#[test]
fn ctrl_c_and_termination_end_all_ranks() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let run = Running::start();
        send(run.parent.id() as i32, signal);
        let (status, said) = run.end();
        assert_eq!(status.code(), Some(code), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_reader_that_does_not_read_keeps_no_signal_from_ending_a_run() {
    for with_errors in [false, true] {
        let (read, write) = pipe().unwrap();
        // Full before anything runs.
        let flags = fcntl_getfl(&write).unwrap();
        fcntl_setfl(&write, flags | OFlags::NONBLOCK).unwrap();
        while rustix::io::write(&write, &[b'x'; 4096]).is_ok() {}
        fcntl_setfl(&write, flags).unwrap();
        let mut command = ccl_perf("allreduce -b 8 -e 8 -n 1 --ranks 2");
        match with_errors {
            true => command.stderr(write.try_clone().unwrap()),
            false => command.stderr(Stdio::piped()),
        };
        let parent = command.stdout(write).spawn().unwrap();
        drop(command);
        let pid = parent.id() as i32;
        let run = Running {
            parent,
            ranks: Vec::new(),
        };
        await_ranks(pid);
        sleep(Duration::from_millis(300)); // The first line waits by then.
        send(pid, Signal::TERM);
        let (status, said) = run.end();
        assert_eq!(status.code(), Some(143), "{said}");
        let wanted = if with_errors {
            ""
        } else {
            "ccl-perf: stopped by SIGTERM; all ranks have ended"
        };
        assert_eq!(said.trim_end(), wanted);
        drop(read);
    }
}

/// Waits until a process has started a rank.
fn await_ranks(pid: i32) {
    let deadline = Instant::now() + SOON;
    while processes(|words| words.first() == Some(&"ccl-perf"))
        .iter()
        .all(|one| one.parent != pid)
    {
        assert!(Instant::now() < deadline, "no rank was started");
        sleep(Duration::from_millis(10));
    }
}

#[test]
fn ctrl_c_ends_tuning() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tuned.json");
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let line = format!("tune --ranks 2 --seconds 600 --output {}", file.display());
        let parent = ccl_perf(&line)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let run = Running {
            parent,
            ranks: Vec::new(),
        };
        let pid = run.parent.id() as i32;
        await_ranks(pid);
        send(pid, signal);
        let (status, said) = run.end();
        assert_eq!(status.code(), Some(code), "{said}");
        assert!(said.lines().count() == 1 && !file.exists(), "{said}");
    }
}

/// As one that a sanitizer finds fault with.
#[test]
fn a_rank_that_ends_badly_when_it_is_done_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (source, library) = (folder.path().join("late.c"), folder.path().join("late.so"));
    let late = r#"
        #define _GNU_SOURCE
        #include <fcntl.h>
        #include <string.h>
        #include <unistd.h>
        __attribute__((destructor)) static void end(void) {
            char line[64];
            int fd = open("/proc/self/cmdline", O_RDONLY);
            ssize_t got = read(fd, line, sizeof line);
            if (got > 0 && memmem(line, (size_t)got, "__rank\0" "1", 8) != NULL) {
                _exit(23);
            }
        }
    "#;
    fs::write(&source, late).unwrap();
    compile::library(source.to_str().unwrap(), &library, &[]);
    let mut command = ccl_perf("allreduce --ranks 3 -b 8 -e 8 -n 1");
    let output = command.env("LD_PRELOAD", &library).output().unwrap();
    let err = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let is_named = err.contains("rank 1 (pid ") && err.contains(") ended with status 23 after it was done");
    assert!(is_named && err.lines().count() == 1, "{err}");
}

#[test]
fn ctrl_c_on_a_terminal_reaches_ranks_too() {
    let run = Running::start();
    for &pid in &run.ranks {
        send(pid, Signal::INT);
    }
    send(run.parent.id() as i32, Signal::INT);
    let (status, said) = run.end();
    assert_eq!(status.code(), Some(130), "{said}");
}

#[test]
fn the_parent_takes_the_ranks_with_it() {
    let mut run = Running::start();
    run.parent.kill().unwrap();
    let (status, _) = run.end();
    assert_eq!(status.code(), None);
}

#[test]
fn a_reader_that_goes_away_ends_the_run() {
    // A line for each of 100,000 sizes, more than anybody waits for.
    let mut parent = ccl_perf("allreduce -b 4 -e 400000 -i 4 -n 1 -w 0 --ranks 2 --no-check")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = String::new();
    BufReader::new(parent.stdout.take().unwrap())
        .read_line(&mut first)
        .unwrap();
    assert!(first.starts_with("# ccl-perf"), "{first}");
    let run = Running {
        parent,
        ranks: Vec::new(),
    };
    let (status, said) = run.end();
    assert_eq!((status.code(), said.as_str()), (Some(1), ""));
}

/// Runs what must succeed with these variables; gives the algorithms of the rows, and what was written to standard error.
fn algorithms_with(variables: &[(&str, &str)], line: &str) -> (Vec<String>, String) {
    let output = ccl_perf(line).envs(variables.iter().copied()).output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{line}\n{out}\n{err}");
    let rows = out.lines().filter(|line| !line.starts_with('#'));
    let algorithm = |row: &str| row.split_whitespace().nth(6).unwrap().to_owned();
    (rows.map(algorithm).collect(), err)
}

#[test]
fn the_environment_forces_algorithms_by_operation() {
    let of = |forced, line: &str| {
        let line = format!("{line} --ranks 2 -b 1K -e 1K -n 3");
        algorithms_with(&[("CCL_ALGO", forced)], &line).0
    };
    let both = "allreduce:ring;broadcast:tree,chain";
    assert_eq!(of(both, "allreduce"), ["ring"]);
    assert!(["tree", "chain"].contains(&of(both, "broadcast")[0].as_str()));
    assert_eq!(of(both, "allreduce --algo halving"), ["halving"]); // the configuration's own wins
    assert_ne!(of("^oneshot,doubling", "allreduce"), ["doubling"]);
    let wrong = ccl_perf("allreduce --ranks 2 -b 1K -e 1K")
        .env("CCL_ALGO", "rings")
        .output()
        .unwrap();
    let err = text(&wrong.stderr);
    assert!(
        wrong.status.code() == Some(1)
            && err.contains("CCL_ALGO: algorithm \"rings\" does not exist: use one of doubling"),
        "{err}"
    );
}

#[test]
fn a_setting_that_is_no_text_is_not_taken_for_none() {
    for name in ["CCL_ALGO", "CCL_ENCRYPTION", "CCL_NET_PLUGIN", "CCL_TRANSPORT"] {
        let output = ccl_perf("allreduce --ranks 2 -b 1K -e 1K")
            .env(name, OsStr::from_bytes(b"\xff\xfe"))
            .output()
            .unwrap();
        let err = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && err.contains('\u{fffd}'),
            "{name}: {err}"
        );
    }
}

#[test]
fn plans_are_explained_once_as_they_are_made() {
    let line = "allreduce --ranks 2 -b 1K -e 2K -n 3";
    let (_, err) = algorithms_with(&[("CCL_EXPLAIN", "1")], line);
    // Of the communicator that is measured: it plans each size once, however often it is called.
    let plans = |bytes| {
        let begins = format!(
            "ccl: plan: allreduce of {bytes} bytes ({} x float32), 2 ranks",
            bytes / 4
        );
        err.lines().filter(|line| line.starts_with(&begins)).count()
    };
    assert_eq!((plans(1024), plans(2048)), (1, 1), "{err}");
    assert!(err.contains("latency") && err.contains("longer:"), "{err}");
}

/// What was measured is used by all ranks as rank 0 has it, whatever the others have.
#[test]
fn what_was_measured_is_rank_0_s() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let tune = ccl_perf("tune --ranks 2 -b 1K -e 1K --seconds 1 --output")
        .arg(file("tuned"))
        .output()
        .unwrap();
    let (out, err) = (text(&tune.stdout), text(&tune.stderr));
    assert_eq!(tune.status.code(), Some(0), "{out}\n{err}");
    assert!(
        out.contains("median factor") && out.contains("allreduce"),
        "{out}"
    );
    let tuned: serde_json::Value = serde_json::from_str(&fs::read_to_string(file("tuned")).unwrap()).unwrap();
    let cores: u64 = 2.min(std::thread::available_parallelism().unwrap().get() as u64);
    let choosing = |name: &str, algorithm: &str| {
        let mut other = tuned.clone();
        other["choices"] = [1, cores]
            .map(|cores| {
                serde_json::json!({"transport": "shm", "operation": "allreduce", "ranks": 2, "cores": cores,
                                   "bytes": [1000, 1100], "algorithm": algorithm})
            })
            .into();
        fs::write(file(name), other.to_string()).unwrap();
    };
    choosing("ring", "ring");
    choosing("halving", "halving");
    let of = |files: [&str; 2]| {
        let start = |rank: usize| {
            ccl_perf("allreduce -b 1K -e 2K -n 3")
                .env(
                    "CCL_TUNE",
                    if files[rank] == "off" {
                        "off".to_owned()
                    } else {
                        file(files[rank])
                    },
                )
                .env("RANK", rank.to_string())
                .env("WORLD_SIZE", "2")
                .env(
                    "TORCHELASTIC_RUN_ID",
                    format!("tuned-{}-{}", std::process::id(), files.join("-")),
                )
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        };
        let ended: Vec<Output> = [start(0), start(1)]
            .into_iter()
            .map(|rank| rank.wait_with_output().unwrap())
            .collect();
        let (out, err) = (text(&ended[0].stdout), text(&ended[0].stderr));
        assert!(
            ended.iter().all(|one| one.status.code() == Some(0)),
            "{out}\n{err}"
        );
        assert!(out.contains("# Out of bounds values : 0 OK"), "{out}");
        let mut rows = out.lines().filter(|line| !line.starts_with('#'));
        (
            rows.next().unwrap().split_whitespace().nth(6).unwrap().to_owned(),
            err,
        )
    };
    assert_eq!(of(["ring", "halving"]).0, "ring");
    // A check judges what communicators choose.
    let check = ccl_perf("tune --ranks 2 -b 1K -e 1K --seconds 1 --check")
        .env("CCL_TUNE", file("ring"))
        .output()
        .unwrap();
    let out = text(&check.stdout);
    let chosen = |line: &str| line.split_whitespace().nth(3) == Some("ring");
    let row = out
        .lines()
        .find(|line| line.trim_start().starts_with("allreduce "));
    assert!(row.is_some_and(chosen), "{out}");
    assert!(
        out.contains(&format!("# as planned by {}\n", file("ring"))),
        "{out}"
    );
    assert_eq!(of(["halving", "off"]).0, "halving");
    let default = of(["off", "ring"]).0;
    assert!(default != "ring" && default != "halving", "{default}");
    fs::write(file("damaged"), "{").unwrap();
    let (algorithm, err) = of(["damaged", "ring"]);
    assert!(
        algorithm == default && err.contains("is not used: it is damaged"),
        "{err}"
    );
}

/// With the stand-in for the CUDA driver: all operations on memory of its devices, with results that are checked.
#[test]
fn memory_of_cuda_devices() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("libcuda.so.1");
    let ran = |line: &str, code: Option<&str>| {
        let mut command = ccl_perf(line);
        command.env("LD_LIBRARY_PATH", folder.path());
        let output = command
            .envs(code.map(|code| ("FAKE_CUDA_INIT", code)))
            .output()
            .unwrap();
        let said = [text(&output.stdout), text(&output.stderr)];
        (output.status.code(), said)
    };
    let is_refused = |(status, [out, err]): (Option<i32>, [String; 2]), part: &str| {
        assert!(err.contains(part) && err.lines().count() == 1, "{err}");
        assert_eq!((status, out.as_str()), (Some(2), ""));
    };
    fs::write(&library, "no library").unwrap();
    is_refused(ran("allreduce --device cuda", None), "no CUDA driver");
    compile::cuda_driver(&library, &[]);
    is_refused(
        ran("allreduce --device cuda", Some("100")),
        "CUDA_ERROR_NO_DEVICE",
    );
    is_refused(ran("allreduce --device cuda", Some("803")), "unknown error");
    is_refused(ran("allreduce --device cuda --overlap", None), "--overlap");
    for operation in [
        "allreduce --both -d float32,int8",
        "allgather --both",
        "reducescatter --both -o max",
        "reduce --both -r 1",
        "gather --in-place",
        "alltoall",
        "alltoallv",
        "allgatherv --in-place",
        "sendrecv",
        "barrier",
    ] {
        let line = format!("{operation} --device cuda --ranks 3 -b 1 -e 300k -f 100 -n 3 -w 1");
        let line = if operation == "barrier" {
            "barrier --device cuda --ranks 3 -n 3".to_owned()
        } else {
            line
        };
        let (status, [out, err]) = ran(&line, None);
        assert_eq!((status, err.as_str()), (Some(0), ""), "{line}\n{out}");
    }
}

/// Ranks that are threads: in host memory, and on one device and on two, where the data stay on the devices.
#[test]
fn ranks_may_be_threads() {
    let host = rows("allreduce --threads --ranks 3 -b 8 -e 1M -f 50 -n 3 -w 1");
    assert_eq!(host.len(), 4);
    let folder = tempfile::tempdir().unwrap();
    compile::cuda_driver_with_kernels(&folder.path().join("libcuda.so.1"));
    for operation in [
        "allreduce --both",
        "allgather --both",
        "reducescatter --both -o max",
        "broadcast --both -r 1",
        "reduce --both",
        "gather --both -r 2",
        "scatter --both",
        "alltoall --both",
        "alltoall --in-place --graph 3",
        "alltoallv",
    ] {
        for devices in ["1", "2"] {
            let mut command = ccl_perf(operation);
            let line = "--threads --device cuda --ranks 3 -b 1 -e 300k -f 100 -n 3 -w 1";
            command
                .args(line.split(' '))
                .env("LD_LIBRARY_PATH", folder.path());
            let direct = command
                .env("CCL_CUDA_DIRECT", "on")
                .env("FAKE_CUDA_DEVICES", devices);
            let output = direct.output().unwrap();
            let (out, err) = (text(&output.stdout), text(&output.stderr));
            assert_eq!(
                (output.status.code(), err.as_str()),
                (Some(0), ""),
                "{operation}\n{out}"
            );
            assert!(out.contains("3, threads of one process"), "{out}");
        }
    }
    let parent = ccl_perf("allreduce --threads --ranks 3 -b 1k -e 1k -n 1000000")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let victim = loop {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.id())).unwrap();
        if let Some(child) = children.split_whitespace().next() {
            break child.parse().unwrap();
        }
    };
    send(victim, Signal::KILL);
    let said = text(&parent.wait_with_output().unwrap().stderr);
    assert!(
        said.contains(&format!("ranks 0 to 2 (pid {victim}) was ended by signal 9")),
        "{said}"
    );
}

/// One rank's call fails by itself, while the streams of others wait for it: arriving, and in the call's own kernel.
#[test]
fn a_failed_launch_on_a_device_ends_the_run() {
    let folder = tempfile::tempdir().unwrap();
    compile::cuda_driver_with_kernels(&folder.path().join("libcuda.so.1"));
    for which in 30..36 {
        let mut command = ccl_perf("allreduce --threads --device cuda --ranks 3 -b 300k -e 300k -n 20 -w 1");
        let output = command
            .env("LD_LIBRARY_PATH", folder.path())
            .env("CCL_CUDA_DIRECT", "on")
            .env("FAKE_CUDA_DEVICES", "1")
            .env("FAKE_CUDA_LAUNCH", which.to_string())
            .output()
            .unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "launch {which}: {said}");
        assert!(
            said.contains("cuLaunchKernel") && !said.contains("did not notice"),
            "launch {which}: {said}"
        );
    }
}

/// By graphs, with the stand-in that has the kernels.
#[test]
fn graphs_of_cuda_devices() {
    let folder = tempfile::tempdir().unwrap();
    compile::cuda_driver_with_kernels(&folder.path().join("libcuda.so.1"));
    let ran = |line: &str, direct: &str| {
        let mut command = ccl_perf(line);
        command.env("LD_LIBRARY_PATH", folder.path());
        let output = command.env("CCL_CUDA_DIRECT", direct).output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    for operation in [
        "allreduce --both",
        "reducescatter -o max",
        "alltoall",
        "gather -r 1",
    ] {
        let line = format!("{operation} --graph 3 --device cuda --ranks 3 -b 1 -e 300k -f 100 -n 3 -w 1");
        let (status, out, err) = ran(&line, "on");
        assert_eq!((status, err.as_str()), (Some(0), ""), "{line}\n{out}");
        assert!(out.contains("graphs of 3"), "{out}");
    }
    let (status, _, err) = ran("allreduce --graph 3 --device cuda --ranks 2 -b 8 -e 8", "off");
    assert!(status == Some(1) && err.contains("CCL_CUDA_DIRECT=on"), "{err}");
    let (status, _, err) = ran("allreduce --graph 3 --ranks 2", "on");
    assert!(status == Some(2) && err.contains("--device cuda"), "{err}");
}

#[test]
fn launched_ranks_explain_what_they_plan_themselves() {
    let output = ccl_perf("allreduce --explain")
        .envs([("RANK", "1"), ("WORLD_SIZE", "2")])
        .output()
        .unwrap();
    let err = text(&output.stderr);
    assert!(
        output.status.code() == Some(2) && err.contains("CCL_EXPLAIN=1"),
        "{err}"
    );
}

#[test]
fn the_command_line_counts_before_the_environment() {
    let header = |line: &str, name: &str| {
        let mut command = ccl_perf(line);
        command.envs([("CCL_TRANSPORT", "tcp"), ("CCL_ALGO", "ring")]);
        let out = text(&command.output().unwrap().stdout);
        let line = out.lines().find(|line| line.starts_with(&format!("# {name} ")));
        line.unwrap_or_else(|| panic!("{out}")).to_owned()
    };
    let line = "allreduce -b 8 -e 8 --ranks 2 -n 1";
    assert_eq!(header(line, "transport"), "# transport  tcp");
    assert_eq!(
        header(&format!("{line} --transport auto"), "transport"),
        "# transport  shm"
    );
    let algorithm = header(line, "algorithm");
    assert!(algorithm.contains("ring, as told by CCL_ALGO"), "{algorithm}");
    let algorithm = header(&format!("{line} --algo direct"), "algorithm");
    assert!(algorithm.contains("direct, as told by --algo"), "{algorithm}");
}

#[test]
fn launched_ranks_with_other_options_are_told_so() {
    let start = |rank: usize, line: &str| {
        ccl_perf(line)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", "3")
            .env("TORCHELASTIC_RUN_ID", format!("options-{}", std::process::id()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let lines = ["-n 5", "-n 7", "-n 5"].map(|options| format!("allreduce -b 1K -e 2K {options}"));
    let started = [0, 1, 2].map(|rank| start(rank, &lines[rank]));
    let ended = started.map(|rank| rank.wait_with_output().unwrap());
    let said = ended.map(|output| (output.status.code(), text(&output.stderr)));
    assert!(said.iter().all(|(code, _)| *code == Some(1)), "{said:?}");
    let of_1 = "rank 1: it was started with other options than rank 0: iterations is 7 here and 5 there";
    assert!(said[1].1.contains(of_1), "{said:?}");
    for rank in [0, 2] {
        assert!(
            said[rank].1.contains("rank 1 was started with other options"),
            "{said:?}"
        );
    }
}
