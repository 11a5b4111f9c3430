//! Ranks on several hosts: network namespaces joined by a wire, each with processes of its own. Making them takes the
//! superuser and the program `ip`.

use ccl::{Communicator, Config, Op, UniqueId};
use std::{
    env, fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

const CCL_PERF: &str = env!("CARGO_BIN_EXE_ccl-perf");

/// Two hosts, `10.77.0.1` and `10.77.0.2`. They and the wire between them are gone with the value, and with the machine.
struct Hosts {
    names: [String; 2],
    folder: tempfile::TempDir,
}

impl Hosts {
    /// `None` where they cannot be made; the test is counted as skipped then.
    fn new(test: &str) -> Option<Hosts> {
        let names = ["a", "b"].map(|end| format!("ccl-{}-{test}-{end}", std::process::id()));
        let hosts = Hosts {
            names,
            folder: tempfile::tempdir().unwrap(),
        };
        let [a, b] = &hosts.names;
        let made = [
            format!("netns add {a}"),
            format!("netns add {b}"),
            format!("link add wire netns {a} type veth peer name wire netns {b}"),
            format!("-n {a} address add 10.77.0.1/24 dev wire"),
            format!("-n {b} address add 10.77.0.2/24 dev wire"),
            format!("-n {a} link set wire up"),
            format!("-n {b} link set wire up"),
        ];
        match made.iter().try_for_each(|line| ip(line)) {
            Ok(()) => Some(hosts),
            Err(why) => {
                println!("skipped: no network namespaces: {why}");
                None
            }
        }
    }

    /// A command that runs `program` on a host, without the variables of this process.
    fn command(&self, host: usize, program: &str) -> Command {
        let mut command = Command::new("ip");
        let line = ["netns", "exec", &self.names[host], program];
        command.args(line).env_clear().stdin(Stdio::null());
        command.env("PATH", env::var_os("PATH").unwrap_or_default());
        command
    }

    /// `ccl-perf` as rank `rank` of a job, with the settings in `more`.
    fn rank(&self, host: usize, rank: usize, ranks: usize, more: &[(&str, &str)]) -> Child {
        self.command(host, CCL_PERF)
            .args(["allreduce", "-b", "8", "-e", "1M", "-f", "32", "-n", "5"])
            .envs([("RANK", rank.to_string()), ("WORLD_SIZE", ranks.to_string())])
            .envs([("MASTER_ADDR", "10.77.0.1"), ("MASTER_PORT", "29500")])
            .envs(more.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn secret(&self, name: &str) -> String {
        let path = self.folder.path().join(name);
        fs::write(&path, format!("{name}, which nobody can guess\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(line: &str) -> Result<(), String> {
    let output = Command::new("ip").args(line.split(' ')).output();
    let output = output.map_err(|e| format!("ip: {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!(
            "ip {line}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn outputs(ranks: Vec<Child>) -> Vec<Output> {
    ranks
        .into_iter()
        .map(|rank| rank.wait_with_output().unwrap())
        .collect()
}

/// Checks that the ranks printed one table without a wrong element, which names `transport`.
fn check_table(outputs: &[Output], transport: &str) {
    for (rank, output) in outputs.iter().enumerate() {
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert_eq!(output.status.code(), Some(0), "rank {rank}: {out}\n{err}");
        let tables = out.matches("# Out of bounds values : 0 OK").count();
        assert_eq!(tables, usize::from(rank == 0), "rank {rank}: {out}");
    }
    let table = text(&outputs[0].stdout);
    assert!(table.contains(&format!("# transport  {transport}\n")), "{table}");
}

#[test]
fn a_secret_file_is_enough() {
    let Some(hosts) = Hosts::new("secret") else { return };
    let file = hosts.secret("secret");
    let ranks = (0..2).map(|rank| hosts.rank(rank, rank, 2, &[("CCL_SECRET_FILE", &file)]));
    check_table(&outputs(ranks.collect()), "tcp");
}

#[test]
fn ranks_of_a_host_share_memory_and_the_others_use_tcp() {
    let Some(hosts) = Hosts::new("mixed") else { return };
    ip(&format!("-n {} link set lo up", hosts.names[0])).unwrap();
    let file = hosts.secret("secret");
    let more = [("CCL_SECRET_FILE", file.as_str()), ("CCL_TCP_STREAMS", "2")];
    let on = [0, 0, 1];
    let ranks = (0..3).map(|rank| hosts.rank(on[rank], rank, 3, &more));
    check_table(&outputs(ranks.collect()), "shm+tcp");
}

/// Typed on each host, with nothing of a launcher's.
#[test]
fn ranks_that_are_started_by_hand_meet() {
    let Some(hosts) = Hosts::new("hand") else { return };
    let file = hosts.secret("secret");
    let rank = |rank: usize, number: &str, at: &str| {
        let mut command = hosts.command(rank % 2, CCL_PERF);
        command.args(["allreduce", "-b", "8", "-e", "64K", "-f", "32", "-n", "5"]);
        command.args(["--rendezvous", at, "--rank", number, "--nranks", "2"]);
        command.env("CCL_SECRET_FILE", &file);
        command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ranks = vec![rank(0, "0", "10.77.0.1:4000"), rank(1, "1", "10.77.0.1:4000")];
    check_table(&outputs(ranks), "tcp");
    for (number, at, why) in [
        (
            "2",
            "10.77.0.1:4000",
            "--rank 2 of --nranks 2: ranks are numbered from 0 to 1",
        ),
        ("0", "10.77.0.1", "give the host of rank 0 and a port"),
    ] {
        let output = rank(0, number, at).wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    }
}

/// Where rank 0 listens, also while its ranks are in calls; who has another secret, or none, is told nothing.
#[test]
fn a_process_of_another_host_is_looked_into_by_the_secret() {
    let Some(hosts) = Hosts::new("look") else { return };
    let (file, other) = (hosts.secret("secret"), hosts.secret("other"));
    let start = |rank: usize, more: &[(&str, &str)]| {
        let mut command = hosts.command(rank, CCL_PERF);
        command.args(["allreduce", "-b", "8", "-e", "8", "-n", "10000000"]);
        command.args(["--rendezvous", "10.77.0.1:4000", "--nranks", "2"]);
        command
            .args(["--rank", &rank.to_string()])
            .envs(more.iter().copied());
        Running(command.stdout(Stdio::null()).spawn().unwrap())
    };
    let with = [("CCL_SECRET_FILE", file.as_str())];
    let _ranks = [start(0, &with), start(1, &with)];
    let look = |file: &str, at: &str| {
        let mut command = hosts.command(1, CCL_PERF);
        command.args(["status", "-n", "64", at]);
        if !file.is_empty() {
            command.env("CCL_SECRET_FILE", file);
        }
        let output = command.output().unwrap();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (mut told, at) = ((None, String::new(), String::new()), "10.77.0.1:4000");
    let in_calls = |told: &str| {
        let parts = [
            "    rank 1 (",
            " allreduce(2 x float32, sum) by ",
            "rank 0 by tcp with rank 1",
        ];
        parts.iter().all(|part| told.contains(part)) && !told.contains("not asked")
    };
    wait_for(
        || {
            told = look(&file, at);
            in_calls(&told.1)
        },
        "both ranks in calls",
    );
    assert_eq!((told.0, &*told.2), (Some(0), ""));
    for (file, at, why) in [
        (
            &*other,
            at,
            "it has another secret than CCL_SECRET_FILE (or CCL_SECRET) names here",
        ),
        (
            "",
            at,
            "processes of other hosts are asked by the secret of their user: have CCL_SECRET_FILE",
        ),
        (&*file, "10.77.0.1:4001", "nobody listens there"),
    ] {
        let (code, out, err) = look(file, at);
        assert_eq!((code, &*out), (Some(1), ""), "{err}");
        assert!(err.starts_with(&format!("ccl-perf: {at}: {why}")), "{err}");
    }
}

/// A process that ends with the value.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two ranks on each host, in turn: what is long goes inside the hosts first.
#[test]
fn ranks_of_several_hosts_use_the_hierarchy() {
    let Some(hosts) = Hosts::new("levels") else { return };
    ip(&format!("-n {} link set lo up", hosts.names[0])).unwrap();
    let file = hosts.secret("secret");
    let more = [("CCL_SECRET_FILE", file.as_str())];
    let ranks = (0..4).map(|rank| hosts.rank(rank % 2, rank, 4, &more));
    let outputs = outputs(ranks.collect());
    check_table(&outputs, "shm+tcp");
    let table = text(&outputs[0].stdout);
    let longest = table.lines().rfind(|line| line.contains("float32")).unwrap_or("");
    assert!(longest.contains("hierarchical"), "{table}");
}

#[test]
fn without_a_secret_every_rank_is_refused_and_told_how_to_make_one() {
    let Some(hosts) = Hosts::new("none") else { return };
    let ranks = (0..2).map(|rank| hosts.rank(rank, rank, 2, &[]));
    for output in outputs(ranks.collect()) {
        let err = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(
            err.contains("\n  (umask 077 && head -c 32 /dev/urandom")
                && err.contains("\n  export CCL_SECRET_FILE="),
            "{err}"
        );
    }
    let ranks = (0..2).map(|rank| hosts.rank(rank, rank, 2, &[("CCL_INSECURE", "1")]));
    check_table(&outputs(ranks.collect()), "tcp");
}

#[test]
fn ranks_may_encrypt_and_must_agree_on_it() {
    let Some(hosts) = Hosts::new("encrypt") else {
        return;
    };
    let file = hosts.secret("secret");
    let start = |settings: [&str; 2]| {
        let ranks = (0..2).map(|rank| {
            let more = [
                ("CCL_SECRET_FILE", file.as_str()),
                ("CCL_ENCRYPTION", settings[rank]),
                ("CCL_TIMEOUT", "60"),
            ];
            hosts.rank(rank, rank, 2, &more)
        });
        outputs(ranks.collect())
    };
    for setting in ["authenticate", "on"] {
        check_table(&start([setting; 2]), "tcp");
    }
    for output in start(["on", "off"]) {
        let err = text(&output.stderr);
        let wanted = ["CCL_ENCRYPTION", "\"on\" on rank 0 on ", "\"off\" on rank 1 on "];
        assert!(
            output.status.code() == Some(1) && wanted.iter().all(|part| err.contains(part)),
            "{err}"
        );
    }
}

#[test]
fn a_wrong_secret_is_refused_on_every_rank() {
    let Some(hosts) = Hosts::new("wrong") else { return };
    let files = [hosts.secret("one"), hosts.secret("another")];
    let start = Instant::now();
    let ranks = (0..2).map(|rank| {
        let more = [("CCL_SECRET_FILE", files[rank].as_str()), ("CCL_TIMEOUT", "4")];
        hosts.rank(rank, rank, 2, &more)
    });
    let outputs = outputs(ranks.collect());
    assert!(
        start.elapsed() < Duration::from_secs(60),
        "they end by themselves"
    );
    for (output, wanted) in outputs
        .iter()
        .zip(["10.77.0.2, did not hold the secret", "have different secrets"])
    {
        let err = text(&output.stderr);
        assert!(output.status.code() == Some(1) && err.contains(wanted), "{err}");
    }
}

#[test]
fn a_port_in_use_and_a_rank_that_is_alone_are_named() {
    let Some(hosts) = Hosts::new("port") else { return };
    let file = hosts.secret("secret");
    let more = [("CCL_SECRET_FILE", file.as_str()), ("CCL_TIMEOUT", "3")];
    let errors = |ranks: Vec<Child>| -> Vec<String> {
        let failed = |output: &Output| output.status.code() == Some(1);
        let outputs = outputs(ranks);
        assert!(outputs.iter().all(failed));
        outputs.iter().map(|output| text(&output.stderr)).collect()
    };
    // Two jobs of which the second's rank 0 finds the port taken.
    let first = hosts.rank(0, 0, 3, &more);
    std::thread::sleep(Duration::from_millis(500));
    let second = hosts.rank(0, 0, 2, &more);
    let errors_of_0 = errors(vec![first, second]);
    assert!(
        errors_of_0[0].contains("2 of 3 ranks never came: 1, 2"),
        "{errors_of_0:?}"
    );
    assert!(
        errors_of_0[1].contains("port 29501") && errors_of_0[1].contains("CCL_MASTER_PORT"),
        "{errors_of_0:?}"
    );
    let alone = errors(vec![hosts.rank(1, 1, 2, &more)]);
    assert!(
        alone[0].contains("rank 0 never came to tcp:10.77.0.1:29501"),
        "{alone:?}"
    );
}

/// `scripts/hosts`, or `None` where it cannot make hosts; the test is counted as skipped then.
fn in_hosts(options: &[&str]) -> Option<Command> {
    if let Some(found) = Hosts::new("script") {
        drop(found);
        let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/hosts"));
        command.args(options).stdin(Stdio::null());
        return Some(command);
    }
    None
}

/// Unequal hosts: what is shared inside them and what goes over the wire gives one table.
#[test]
fn the_script_runs_a_command_as_if_on_several_hosts() {
    let options = ["--hosts", "3", "--ranks", "2,1,3", "--interfaces", "2", "--bytes"];
    let Some(mut command) = in_hosts(&options) else {
        return;
    };
    command.args([
        CCL_PERF,
        "allreduce",
        "-b",
        "8",
        "-e",
        "256K",
        "-f",
        "32",
        "-n",
        "3",
    ]);
    let output = command.output().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{out}\n{err}");
    assert!(
        out.contains("# ranks      6,") && out.contains("# transport  shm+tcp\n"),
        "{out}"
    );
    assert_eq!(out.matches("# Out of bounds values : 0 OK").count(), 1, "{out}");
    for host in 0..3 {
        for (interface, least) in [(0, 100_000), (1, 0)] {
            let line = format!("# host {host}, wire{interface}: ");
            let bytes = out
                .lines()
                .find_map(|l| l.strip_prefix(&line))
                .unwrap_or_else(|| panic!("{out}"));
            let sent: u64 = bytes.split(' ').next().unwrap().parse().unwrap();
            assert!(sent >= least, "{out}");
        }
    }
}

#[test]
fn the_script_ends_as_its_commands_do_and_leaves_nothing() {
    let Some(mut command) = in_hosts(&["-n", "2"]) else {
        return;
    };
    let output = command
        .args(["bash", "-c", "exit $((RANK * 7))"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let Some(mut command) = in_hosts(&["-n", "0"]) else {
        return;
    };
    let output = command.arg("true").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--hosts takes a number from 1 to 200"));

    let Some(mut command) = in_hosts(&["-n", "2"]) else {
        return;
    };
    // A duration that nobody else sleeps.
    let duration = format!("{}.{}", 3600, std::process::id());
    let mut script = command.args(["sleep", &duration]).spawn().unwrap();
    let sleeps = || -> usize {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines
            .filter(|line| text(line) == format!("sleep\0{duration}\0"))
            .count()
    };
    wait_for(|| sleeps() == 2, "both hosts to run the command");
    script.kill().unwrap(); // as kill -9
    script.wait().unwrap();
    wait_for(|| sleeps() == 0, "the command to end with the script");
}

fn wait_for(mut is_so: impl FnMut() -> bool, what: &str) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The id of one host's process reaches ranks on both, and so does what is made of their communicator.
#[test]
fn an_id_reaches_other_hosts() {
    if let Ok(role) = env::var("CCL_TEST_ROLE") {
        return take_part(&role);
    }
    let Some(hosts) = Hosts::new("id") else { return };
    let id = hosts.folder.path().join("id");
    let ranks = [0, 1, 2].map(|rank| {
        let test = env::current_exe().unwrap();
        hosts
            .command(ON[rank], test.to_str().unwrap())
            .args(["--exact", "an_id_reaches_other_hosts", "--nocapture"])
            .env("CCL_TEST_ROLE", format!("{rank} {}", id.display()))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    });
    for output in outputs(ranks.into()) {
        assert!(
            output.status.success(),
            "{}\n{}",
            text(&output.stdout),
            text(&output.stderr)
        );
    }
}

/// A rank's way is closed when it goes to the others, and opened once it has seen that.
#[test]
fn an_outage_at_the_meeting_is_not_the_end() {
    if let Ok(role) = env::var("CCL_TEST_ROLE") {
        return take_part(&role);
    }
    let Some(hosts) = Hosts::new("outage") else { return };
    let (id, away) = (hosts.folder.path().join("id"), &hosts.names[1]);
    ip(&format!("-n {away} route add unreachable 10.77.0.1")).unwrap();
    let mut ranks = [0, 1, 2].map(|rank| {
        let test = env::current_exe().unwrap();
        hosts
            .command(ON[rank], test.to_str().unwrap())
            .args([
                "--exact",
                "an_outage_at_the_meeting_is_not_the_end",
                "--nocapture",
            ])
            .env("CCL_TEST_ROLE", format!("{rank} {}", id.display()))
            .env("CCL_DEBUG", "info")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let mut told: Vec<_> = (ranks.iter_mut())
        .map(|rank| {
            BufReader::new(rank.stderr.take().unwrap())
                .lines()
                .map_while(Result::ok)
        })
        .collect();
    assert!(told[1].any(|line| line.contains("no way to unix:@ccl-")));
    ip(&format!("-n {away} route delete unreachable 10.77.0.1")).unwrap();
    for (output, told) in outputs(ranks.into()).iter().zip(told) {
        let told: Vec<String> = told.collect();
        assert!(
            output.status.success(),
            "{}\n{}",
            text(&output.stdout),
            told.join("\n")
        );
    }
}

/// A rank leaves after its last call, of which the other reads the rest only then, and in an outage.
#[test]
fn what_a_rank_sent_last_comes_after_an_outage() {
    let test = "what_a_rank_sent_last_comes_after_an_outage";
    if let Ok(role) = env::var("CCL_TEST_ROLE") {
        return gather_late(&role);
    }
    let Some(hosts) = Hosts::new("last") else { return };
    let id = hosts.folder.path().join("id");
    let [mut root, sender] = [0, 1].map(|rank| {
        hosts
            .command(rank, env::current_exe().unwrap().to_str().unwrap())
            .args(["--exact", test, "--nocapture"])
            .env("CCL_TEST_ROLE", format!("{rank} {}", id.display()))
            .env("CCL_TCP_SPLICE", "off")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    });
    let sent = sender.wait_with_output().unwrap();
    assert!(
        sent.status.success(),
        "{}\n{}",
        text(&sent.stdout),
        text(&sent.stderr)
    );
    // Longer than last messages are waited for where nothing comes.
    std::thread::sleep(Duration::from_millis(2500));
    ip(&format!("-n {} link set wire down", hosts.names[0])).unwrap();
    fs::write(id.with_extension("go"), "").unwrap();
    let mut told = BufReader::new(root.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(told.any(|line| line.contains("gathers")));
    std::thread::sleep(Duration::from_secs(1));
    ip(&format!("-n {} link set wire up", hosts.names[0])).unwrap();
    let told: Vec<String> = told.collect();
    let output = root.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        told.join("\n"),
        text(&output.stderr)
    );
}

fn gather_late(role: &str) {
    let (rank, id, config) = part(role);
    let comm = Communicator::init(2, &id, rank, &config).unwrap();
    comm.all_reduce_in_place(&mut [1i32], Op::Sum).unwrap();
    // More than a reader that does not read has room for, and no more than the system keeps for it.
    let (send, mut recv) = ([rank as u8 + 1; 128 << 10], vec![0; 256 << 10]);
    if rank == 1 {
        return comm.gather(&send, None, 0).unwrap();
    }
    let go = PathBuf::from(role.split_once(' ').unwrap().1).with_extension("go");
    wait_for(|| go.exists(), "the word to go on");
    println!("gathers");
    comm.gather(&send, Some(&mut recv), 0).unwrap();
    assert!(recv[..send.len()] == send && recv[send.len()..] == [2; 128 << 10]);
}

/// The hosts of the ranks.
const ON: [usize; 3] = [0, 1, 1];

/// A rank, the id that rank 0 makes, and a configuration.
fn part(role: &str) -> (usize, UniqueId, Config) {
    let (rank, path) = role.split_once(' ').unwrap();
    let (rank, path): (usize, _) = (rank.parse().unwrap(), PathBuf::from(path));
    let mut config = Config::default();
    config.timeout = Some(Duration::from_secs(60));
    let id = if rank == 0 {
        let id = UniqueId::new().unwrap();
        fs::write(path.with_extension("part"), id.to_bytes()).unwrap();
        fs::rename(path.with_extension("part"), path).unwrap();
        id
    } else {
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            match fs::read(&path) {
                Ok(bytes) => break UniqueId::from_bytes(bytes.try_into().unwrap()).unwrap(),
                Err(_) => assert!(Instant::now() < end),
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    (rank, id, config)
}

fn take_part(role: &str) {
    let (rank, id, config) = part(role);
    let check = |comm: &Communicator, new_rank, transport, sum| {
        let mut data = [rank as i64; 1000];
        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
        assert!(data == [sum; 1000], "{}", data[0]);
        assert_eq!((comm.rank(), comm.transport()), (new_rank, transport));
    };
    let comm = Communicator::init(3, &id, rank, &config).unwrap();
    check(&comm, rank, "shm+tcp", 3);
    // Met by the other host than before, and by each for itself.
    let reversed = comm.split(Some(0), -(rank as i32), None).unwrap().unwrap();
    drop(comm);
    check(&reversed, 2 - rank, "shm+tcp", 3);
    let host = reversed
        .split(Some(ON[rank] as u32), rank as i32, None)
        .unwrap()
        .unwrap();
    check(&host, [0, 0, 1][rank], "shm", [0, 3, 3][rank]);
    let odd = (rank != 1).then_some(7);
    if let Some(between) = reversed.split(odd, rank as i32, None).unwrap() {
        check(&between, rank / 2, "tcp", 2);
    }
}
