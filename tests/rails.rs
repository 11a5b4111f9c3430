//! Hosts with several interfaces, which `scripts/hosts` makes: which of them carry what, and what is said where a way is closed.
//! It takes the superuser and the programs `ip` and `unshare`.

use std::{
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const CCL_PERF: &str = env!("CARGO_BIN_EXE_ccl-perf");

/// What came of a job.
struct Ran {
    status: Option<i32>,
    out: String,
    err: String,
    took: Duration,
}

/// Runs `script` by bash for each rank, as if on several hosts; `$PERF` is the benchmark. `None` where there can be none; the
/// test is counted as skipped then.
fn run(options: &str, script: &str) -> Option<Ran> {
    let probe = Command::new("unshare")
        .args(["--net", "--mount", "ip", "link"])
        .output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        println!("skipped: no network namespaces");
        return None;
    }
    let start = Instant::now();
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/hosts"))
        .args(options.split(' '))
        .args(["bash", "-c", &format!("set -e\n{script}")])
        .env("PERF", CCL_PERF)
        .env_remove("CCL_DEBUG")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(Ran {
        status: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
        took: start.elapsed(),
    })
}

impl Ran {
    /// Checks that it went well, with right results.
    fn check(&self) {
        assert_eq!(self.status, Some(0), "{}\n{}", self.out, self.err);
        let tables = self.out.matches("# Out of bounds values : 0 OK").count();
        assert_eq!(tables, 1, "{}\n{}", self.out, self.err);
    }

    /// Bytes sent by an interface.
    fn sent(&self, host: usize, interface: usize) -> u64 {
        let line = format!("# host {host}, wire{interface}: ");
        let bytes = self.out.lines().find_map(|l| l.strip_prefix(&line));
        let sent = bytes.and_then(|bytes| bytes.split(' ').next()?.parse().ok());
        sent.unwrap_or_else(|| panic!("{}", self.out))
    }

    /// What rank `rank` has written as errors.
    fn errors_of(&self, rank: usize) -> String {
        let mark = format!("[{rank}] ");
        let lines = self.err.lines().filter_map(|line| match rank {
            0 => (!line.starts_with('[')).then_some(line),
            _ => line.strip_prefix(&mark),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Checks that every rank failed with a text that has all these parts of its own.
    fn failed(&self, wanted: &[&[&str]]) {
        assert_eq!(self.status, Some(1), "{}\n{}", self.out, self.err);
        for (rank, parts) in wanted.iter().enumerate() {
            let err = self.errors_of(rank);
            for part in *parts {
                assert!(
                    err.contains(part),
                    "rank {rank} does not say {part:?}:\n{}",
                    self.err
                );
            }
        }
    }
}

const LONG: &str = "exec $PERF allreduce -b 16M -e 16M -n 2 -w 1";
/// In which each rank sends to each other.
const SHORT: &str = "CCL_ALGO=oneshot exec $PERF allreduce -b 8 -e 8 -n 1 -w 0";

/// Has what host 0 sends by its second interface, and answers there, vanish without a word.
const SWALLOW: &str = "if [ $HOST = 0 ]; then for h in 2 3 4; do \
    ip neigh replace 10.88.1.$h lladdr 02:00:00:00:00:99 dev wire1 nud permanent; done; fi\n";

#[test]
fn interfaces_carry_equal_parts() {
    let options = "--hosts 4 --ranks 2 --interfaces 2 --bytes";
    let Some(ran) = run(options, &format!("export CCL_DEBUG=info\n{LONG}")) else {
        return;
    };
    ran.check();
    for host in 0..4 {
        let [a, b] = [0, 1].map(|interface| ran.sent(host, interface));
        println!("host {host}: {a} and {b} bytes sent");
        assert!(a > 10_000_000 && b > 10_000_000, "{}", ran.out);
        assert!(a < 2 * b && b < 2 * a, "{}", ran.out);
    }
    for told in [
        "init: interfaces: lo (127.0.0.1/8",
        "addresses for other hosts, the best first: 10.88.0.1, 10.88.1.1",
        "by tcp:10.88.0.2:",
    ] {
        assert!(ran.err.contains(told), "{told}: {}", ran.err);
    }
}

#[test]
fn one_interface_is_used_where_one_is_asked_for() {
    for (setting, used) in [
        ("CCL_RAILS=1", 0),
        ("CCL_SOCKET_IFNAME==wire1", 1),
        ("CCL_SOCKET_SUBNET=^10.88.0.0/24", 1),
    ] {
        let options = "--hosts 2 --ranks 2 --interfaces 2 --bytes";
        let Some(ran) = run(options, &format!("export {setting}\n{LONG}")) else {
            return;
        };
        ran.check();
        for host in 0..2 {
            assert!(ran.sent(host, used) > 10_000_000, "{setting}: {}", ran.out);
            assert!(ran.sent(host, 1 - used) < 100_000, "{setting}: {}", ran.out);
        }
    }
}

/// More connections than interfaces are spread over them, and fewer use as many.
#[test]
fn connections_are_spread_over_interfaces() {
    for (streams, least) in [(1, 0), (5, 10_000_000)] {
        let script = format!("export CCL_TCP_STREAMS={streams}\n{LONG}");
        let Some(ran) = run("--hosts 2 --interfaces 2 --bytes", &script) else {
            return;
        };
        ran.check();
        assert!(
            ran.sent(0, 0) > 10_000_000 && ran.sent(1, 1) >= least,
            "{}",
            ran.out
        );
        assert!(least > 0 || ran.sent(1, 1) < 100_000, "{}", ran.out);
    }
}

#[test]
fn hosts_with_unequal_interfaces_use_what_they_have_in_common() {
    let script = format!("[ $HOST != 1 ] || ip link set wire1 down\n{LONG}");
    let Some(ran) = run("--hosts 3 --ranks 1,2,1 --interfaces 2 --bytes", &script) else {
        return;
    };
    ran.check();
    assert!(
        ran.sent(1, 0) > 10_000_000 && ran.sent(1, 1) < 100_000,
        "{}",
        ran.out
    );
}

#[test]
fn a_way_on_which_everything_vanishes_is_left_out() {
    let script = format!("{SWALLOW}export CCL_DEBUG=warn\n{LONG}");
    let Some(ran) = run("--hosts 2 --ranks 2 --interfaces 2 --bytes", &script) else {
        return;
    };
    ran.check();
    for host in 0..2 {
        assert!(
            ran.sent(host, 0) > 10_000_000 && ran.sent(host, 1) < 100_000,
            "{}",
            ran.out
        );
    }
    assert!(
        ran.err
            .contains("left out, since other ways are open: tcp:10.88.1.2:"),
        "{}",
        ran.err
    );
    assert!(ran.err.contains("(no answer)"), "{}", ran.err);
}

/// The meeting's first address leads nowhere: that costs about a second, here and in the tree of control connections.
#[test]
fn the_meeting_is_found_at_the_next_address() {
    let script = "if [ $HOST = 0 ]; then ip neigh replace 10.88.0.2 lladdr 02:00:00:00:00:99 dev wire0 nud permanent; fi\n\
        echo '10.88.0.1 first' >> /tmp/hosts.$$; echo '10.88.1.1 first' >> /tmp/hosts.$$\n\
        mount --bind /tmp/hosts.$$ /etc/hosts; rm /tmp/hosts.$$; export MASTER_ADDR=first\n";
    let Some(ran) = run("--hosts 2 --interfaces 2", &format!("{script}{SHORT}")) else {
        return;
    };
    ran.check();
    assert!(ran.took < Duration::from_secs(60), "{:?}", ran.took);
}

#[test]
fn settings_that_leave_nothing_are_refused_with_what_there_is() {
    for (setting, parts) in [
        (
            "CCL_SOCKET_IFNAME=eth9",
            &[
                "CCL_SOCKET_IFNAME=\"eth9\" leaves no address",
                "there are lo (127.0.0.1/8",
                "wire0 (10.88.0.",
            ][..],
        ),
        (
            "CCL_SOCKET_SUBNET=10.99.0.0/16",
            &[
                "CCL_SOCKET_SUBNET=\"10.99.0.0/16\" leaves no address",
                "wire0 (10.88.0.",
            ],
        ),
        ("CCL_SOCKET_SUBNET=10.88", &["is no list of subnets"]),
        ("CCL_SOCKET_FAMILY=4", &["is no version of IP: use AF_INET"]),
        ("CCL_PORT_RANGE=5", &["is no range of ports"]),
        (
            "CCL_RAILS=0",
            &["CCL_RAILS=\"0\" is no number of interfaces from 1 to 8"],
        ),
        (
            "CCL_TCP_STREAMS=9",
            &["CCL_TCP_STREAMS=\"9\" is no number of connections from 1 to 8"],
        ),
    ] {
        let Some(ran) = run("--hosts 2", &format!("export {setting}\n{SHORT}")) else {
            return;
        };
        ran.failed(&[parts, parts]);
    }
}

#[test]
fn ports_are_taken_from_a_range_until_there_are_none() {
    let Some(ran) = run(
        "--hosts 2 --ranks 2",
        &format!("export CCL_PORT_RANGE=40000-40003\n{SHORT}"),
    ) else {
        return;
    };
    ran.check();
    // The port where rank 0 will listen, one above MASTER_PORT, is left to it, though others come first.
    let script = format!("export CCL_PORT_RANGE=29501-29503\n[ $RANK != 0 ] || sleep 1\n{SHORT}");
    let Some(ran) = run("--hosts 2 --ranks 2", &script) else {
        return;
    };
    ran.check();
    let script = format!("export CCL_TIMEOUT=8 CCL_PORT_RANGE=40000-40000\n{SHORT}");
    let Some(ran) = run("--hosts 2 --ranks 1,2", &script) else {
        return;
    };
    // Whichever of the two comes second.
    assert_eq!(ran.status, Some(1), "{}\n{}", ran.out, ran.err);
    assert!(
        ran.err.contains("all ports from 40000 to 40000 are in use"),
        "{}",
        ran.err
    );
    assert!(
        ran.errors_of(0).contains("1 of 3 ranks never came"),
        "{}",
        ran.err
    );
}

#[test]
fn who_does_not_find_rank_0_says_what_was_tried() {
    let one = |setting: &str| {
        run(
            "--hosts 2",
            &format!("export CCL_TIMEOUT=3\n[ $HOST = 0 ] || export {setting}\n{SHORT}"),
        )
    };
    let missing = "1 of 2 ranks never came: 1";
    let Some(ran) = one("MASTER_ADDR=nowhere.invalid") else {
        return;
    };
    ran.failed(&[
        &[missing],
        &["rank 1 does not know the host of rank 0", "nowhere.invalid"],
    ]);
    let Some(ran) = one("CCL_MASTER_PORT=4001") else {
        return;
    };
    ran.failed(&[
        &[missing],
        &[
            "rank 0 never came to tcp:10.88.0.1:4001",
            "tried from",
            "tcp:10.88.0.1:4001 (nobody listens there any more)",
        ],
    ]);
    let Some(ran) = one("MASTER_ADDR=10.88.7.7") else {
        return;
    };
    ran.failed(&[
        &[missing],
        &["tried from", "tcp:10.88.7.7:29501 (Network is unreachable"],
    ]);
    // Nobody answers for this address.
    let Some(ran) = one("MASTER_ADDR=10.88.0.200") else {
        return;
    };
    ran.failed(&[&[missing], &["tried from", "tcp:10.88.0.200:29501 ("]]);
}

#[test]
fn another_version_and_other_settings_are_told_to_all() {
    // Somebody speaks version 1 of the protocol.
    let script = format!(
        "export CCL_TIMEOUT=4\n[ $HOST = 0 ] || {{ sleep 1; exec 3<>/dev/tcp/10.88.0.1/29501; \
         {{ printf 'ccl\\0wire\\1\\0\\0\\0\\1'; head -c 59 /dev/zero; }} >&3; head -c 1 <&3 >/dev/null; exit 1; }}\n{SHORT}"
    );
    let Some(ran) = run("--hosts 2", &script) else {
        return;
    };
    ran.failed(&[&[
        "1 of 2 ranks never came: 1",
        "one on 10.88.0.2 speaks version 1 of the protocol",
    ]]);
    let script = format!("[ $HOST = 0 ] || export CCL_TRANSPORT=tcp\n{SHORT}");
    let Some(ran) = run("--hosts 2", &script) else {
        return;
    };
    let both: &[&str] = &[
        "transport is",
        "\"auto\" on rank 0 on ",
        "\"tcp\" on rank 1 on ",
        "(10.88.0.1)",
        "(10.88.0.2)",
    ];
    ran.failed(&[both, both]);
}

#[test]
fn hosts_without_a_network_in_common_are_named_to_all() {
    // Host 2 knows the way to host 0 alone.
    let script = format!(
        "[ $HOST != 1 ] || ip link set wire1 down\n\
         [ $HOST != 2 ] || {{ ip link set wire0 down; ip route add 10.88.0.1 dev wire1; }}\n{SHORT}"
    );
    let Some(ran) = run("--hosts 3 --interfaces 2", &script) else {
        return;
    };
    let all: &[&str] = &[
        "no link from it on ",
        "; tried tcp:10.88.",
        "Network is unreachable",
        "CCL_SOCKET_IFNAME",
    ];
    ran.failed(&[all, all, all]);
    let pair = ["(10.88.0.2) to rank 2 on ", "(10.88.1.3) to rank 1 on "];
    assert!(pair.iter().any(|pair| ran.err.contains(pair)), "{}", ran.err);
}

/// As where containers of two hosts each have the first address behind a bridge of that host.
#[test]
fn hosts_that_tell_the_same_address_are_named_with_it() {
    let script = format!(
        "ip addr add 172.17.0.2/16 dev wire0\nexport CCL_SOCKET_SUBNET=172.17.0.0/16 CCL_TIMEOUT=8\n{SHORT}"
    );
    let Some(ran) = run("--hosts 2", &script) else {
        return;
    };
    let all: &[&str] = &[
        "both hosts have all addresses that rank ",
        "(172.17.0.2)",
        "CCL_SOCKET_IFNAME",
    ];
    ran.failed(&[all, all]);
    assert!(!ran.err.contains("was lost"), "{}", ran.err);
}

#[test]
fn a_firewall_between_two_hosts_is_named_to_all_by_the_deadline() {
    let script = format!(
        "[ $HOST != 1 ] || ip neigh replace 10.88.0.3 lladdr 02:00:00:00:00:99 dev wire0 nud permanent\n\
         export CCL_TIMEOUT=8\n{SHORT}"
    );
    let Some(ran) = run("--hosts 3", &script) else {
        return;
    };
    let all: &[&str] = &["no link from it on ", "; tried tcp:10.88.0.", "(no answer)"];
    ran.failed(&[all, all, all]);
}

/// Of unequal interfaces the fastest are used, and that a slow one is asked for is told.
#[test]
fn fast_interfaces_are_preferred_and_slow_ones_told() {
    // Of such interfaces 10 Gbit/s would say nothing.
    let faster = "for card in wire0/20000 wire1/100000; do\n\
        echo ${card#*/} > /tmp/speed.$$; mount --bind /tmp/speed.$$ /sys/class/net/${card%/*}/speed; rm /tmp/speed.$$\n\
        done\n\
        export CCL_DEBUG=warn\n";
    let Some(ran) = run("--hosts 2 --interfaces 2 --bytes", &format!("{faster}{LONG}")) else {
        return;
    };
    ran.check();
    assert!(
        ran.sent(0, 1) > 10_000_000 && ran.sent(0, 0) < 100_000,
        "{}",
        ran.out
    );
    assert!(!ran.err.contains("WARN"), "{}", ran.err);
    let script = format!("{faster}export CCL_SOCKET_IFNAME=wire0\n{SHORT}");
    let Some(ran) = run("--hosts 2 --interfaces 2", &script) else {
        return;
    };
    ran.check();
    let told = "at 20 Gbit/s only, while this host has an interface of 100 Gbit/s";
    assert!(ran.err.contains(told), "{}", ran.err);
}

/// The cable of one host is pulled in the middle of a run, and nothing says so: the ranks on both sides end, long before any
/// deadline, and name ranks of the other side. `before` is a command that starts the benchmark.
fn ends_on_both_sides(before: &str) {
    let script = format!(
        "if [ $RANK = 2 ]; then (sleep 2; ip link set wire0 down) & fi\n\
         exec {before} $PERF allreduce -b 64K -e 64K -n 10000000 -w 1"
    );
    let Some(ran) = run("--hosts 2 --ranks 2", &script) else {
        return;
    };
    ran.failed(&[&["was lost"][..]; 4]);
    for rank in 0..4 {
        let err = ran.errors_of(rank);
        let others = if rank < 2 {
            ["rank 2 ", "rank 3 "]
        } else {
            ["rank 0 ", "rank 1 "]
        };
        let is_named = |other: &str| err.contains(&format!("{other}was lost"));
        assert!(others.iter().any(|other| is_named(other)), "{err}");
    }
    println!(
        "over after {:.1?}, 2 s of them before the cable was pulled",
        ran.took
    );
    assert!(ran.took < Duration::from_secs(120), "{:?}", ran.took);
}

/// Where the hosts see each other's processes, which go on.
#[test]
fn a_cable_that_is_pulled_ends_a_run() {
    ends_on_both_sides("env CCL_HEARTBEAT=5");
}

/// Where they do not.
#[test]
fn a_host_that_vanishes_is_noticed() {
    ends_on_both_sides("unshare --pid --fork");
}

/// As where a switch starts anew: calls go on when it is over.
#[test]
fn an_outage_that_is_shorter_than_the_heartbeat_ends_nothing() {
    let script = "if [ $RANK = 2 ]; then (sleep 2; ip link set wire0 down; sleep 7; ip link set wire0 up) & fi\n\
                  exec $PERF allreduce -b 64K -e 64K -n 8000 -w 1 --out-of-place";
    let Some(ran) = run("--hosts 2 --ranks 2", script) else {
        return;
    };
    ran.check();
}

/// Two hosts cannot reach each other, and both reach all others: one of their ranks is named by all, though all wait for one another.
#[test]
fn of_two_hosts_that_are_cut_off_from_each_other_one_is_named() {
    let script = "for h in 1 2; do if [ $HOST = $h ]; then\n\
                  (sleep 3; ip neigh replace 10.88.0.$((4 - h)) lladdr 02:00:00:00:00:99 dev wire0 nud permanent) & fi; done\n\
                  exec $PERF allreduce -b 8 -e 8 -n 10000000 -w 1 --algo ring --timeout 4";
    let Some(ran) = run("--hosts 4 --ranks 2", script) else {
        return;
    };
    assert_eq!(ran.status, Some(1), "{}\n{}", ran.out, ran.err);
    for rank in 0..8 {
        let err = ran.errors_of(rank);
        let is_named = |cut_off: u32| err.contains(&format!("rank {cut_off} stayed silent"));
        assert!((2..6).any(is_named), "{err}");
    }
}
