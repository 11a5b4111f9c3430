//! Ranks joined by a network plugin: that of `examples/net_plugin/loop.c`.

mod common;

use ccl::{Collective, Communicator, Config, Error, Op, UniqueId, algorithms};
use common::{
    config, plugin,
    process::{self, Rank},
    with_ranks,
};
use std::{sync::LazyLock, thread, time::Duration};

/// The plugin, compiled.
fn library() -> &'static str {
    static LIBRARY: LazyLock<String> = LazyLock::new(plugin::example);
    &LIBRARY
}

fn over_loop() -> Config {
    let mut config = config();
    (config.transport, config.plugin) = (Some("loop".to_owned()), Some(library().to_owned()));
    config
}

#[test]
fn every_algorithm_gives_the_bits_of_shared_memory() {
    for (name, _) in algorithms(Collective::AllReduce) {
        for ranks in [2, 5] {
            let bits = |mut config: Config| {
                config.algorithm = Some(name.to_owned());
                with_ranks(ranks, &config, |comm| {
                    let mut all = Vec::new();
                    for len in [1, 1000, 150_001] {
                        let value = |i: usize| ((i * 37 + comm.rank() * 101) as f32).sin() * 1e3;
                        let mut data: Vec<f32> = (0..len).map(value).collect();
                        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
                        all.extend(data.into_iter().map(f32::to_bits));
                    }
                    (comm.transport(), all)
                })
            };
            let ours = bits(over_loop());
            assert!(
                ours.iter()
                    .all(|(transport, bits)| (*transport, bits) == ("loop", &ours[0].1))
            );
            assert!(ours[0].1 == bits(config())[0].1, "{name} among {ranks}");
        }
    }
}

#[test]
fn ranks_sleep_send_and_leave_at_once() {
    with_ranks(3, &over_loop(), |comm| {
        for round in 0..4 {
            if round % 3 == comm.rank() {
                thread::sleep(Duration::from_millis(60)); // the others sleep by then
            }
            let mut data = vec![1u32; 100_000];
            comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
            assert!(data.iter().all(|&sum| sum == 3));
        }
        let (next, before) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
        for len in [1, 5000, 300_000] {
            let (data, mut got) = (vec![comm.rank() as u16; len], vec![9u16; len]);
            comm.scope(|scope| {
                scope.send(&data, next).unwrap();
                scope.recv(&mut got, before).unwrap();
                Ok::<_, Error>(())
            })
            .unwrap();
            assert!(got.iter().all(|&from| usize::from(from) == before));
        }
        let half = comm
            .split(Some(comm.rank() as u32 % 2), 0, None)
            .unwrap()
            .unwrap();
        half.barrier().unwrap();
        // The root's messages are under way when it has gone.
        let mut data = vec![comm.rank() as u64 + 1; 200_000];
        comm.broadcast_in_place(&mut data, 2).unwrap();
        assert!(data.iter().all(|&value| value == 3));
    });
}

#[test]
fn settings_that_do_not_fit_are_told_to_all() {
    let told = |plugins: [Option<&str>; 2]| {
        let id = UniqueId::new().unwrap();
        let errors: Vec<String> = thread::scope(|scope| {
            let ranks = plugins.into_iter().enumerate().map(|(rank, plugin)| {
                let (id, mut config) = (&id, config());
                config.plugin = plugin.map(str::to_owned);
                scope.spawn(move || Communicator::init(2, id, rank, &config).unwrap_err().to_string())
            });
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        });
        errors
    };
    let error = told([Some(library()), None]);
    assert!(
        error[0] == error[1]
            && ["\"loop 1\" on rank 0", "\"none\" on rank 1"]
                .iter()
                .all(|part| error[0].contains(part)),
        "{error:?}"
    );
    let error = told([Some("missing"), Some(library())]);
    assert!(
        error[0] == error[1] && error[0].contains("\"not there: libccl_net_missing.so: it cannot"),
        "{error:?}"
    );
    let error = told([Some("missing"); 2]);
    let begins =
        |error: &String| error.contains("CCL_NET_PLUGIN: libccl_net_missing.so: it cannot be loaded: ");
    assert!(error.iter().all(begins), "{error:?}");
}

/// Not a test by itself: what the processes do.
#[test]
fn roles() {
    let Some((role, id, ranks, rank)) = process::role() else {
        return;
    };
    let mut config = config();
    config.plugin = Some(library_of_parent());
    let comm = match Communicator::init(ranks, &id, rank, &config) {
        Ok(comm) => comm,
        Err(error) => return process::say(error),
    };
    if role == "falls-back" {
        let mut data = vec![rank as u64; 70_000];
        comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
        return process::say(format!("{} {}", comm.transport(), data[69_999]));
    }
    if role == "circle" {
        // From rank 1 to the next, and so on, until it is back.
        let (next, before) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
        let mut got = [0u8; 100];
        let mut round = || {
            if rank == 1 {
                comm.scope(|scope| {
                    scope.send(&[1; 100], next)?;
                    scope.recv(&mut got, before)
                })
            } else {
                comm.recv(&mut got, before)?;
                comm.send(&got, next)
            }
        };
        return process::say(round().unwrap_err());
    }
    if role == "sends-once" {
        return process::say(comm.broadcast_in_place(&mut [7u8], 1).unwrap_err());
    }
    let call = |len: usize| {
        let mut data = vec![1u32; len];
        comm.all_reduce_in_place(&mut data, Op::Sum)
    };
    if role == "killed" {
        call(10).unwrap();
        process::say("begun");
    }
    let error = (0..5000).find_map(|i| {
        if role == "sleeps" && rank == 0 {
            thread::sleep(Duration::from_millis(50));
        }
        call([3, 40_000, 400_000][i % 3]).err()
    });
    let error = error.expect("a call that fails");
    assert!(matches!(error, Error::Failed(_)), "{error:?}");
    assert!(matches!(call(1), Err(Error::Closed(_))));
    process::say(error);
}

fn library_of_parent() -> String {
    std::env::var("CCL_TEST_PLUGIN").unwrap()
}

fn start(ranks: usize, settings: &[(&str, &str)], role: &str) -> Vec<Rank> {
    let all = [
        &[("CCL_TRANSPORT", "loop"), ("CCL_TEST_PLUGIN", library())],
        settings,
    ]
    .concat();
    Rank::start_all(ranks, &all, role)
}

#[test]
fn a_rank_that_was_killed_is_named() {
    for _ in 0..3 {
        let mut ranks = start(3, &[], "killed");
        assert!(ranks.iter_mut().all(|rank| rank.said() == "begun"));
        let pid = ranks[1].child.id();
        ranks[1].child.kill().unwrap();
        for survivor in [0, 2] {
            let said = ranks[survivor].said();
            assert!(
                said.contains(&format!("rank 1 was lost (its process {pid} ended)")),
                "{said}"
            );
        }
    }
}

#[test]
fn a_function_that_fails_is_told_with_its_text() {
    // Each when it is first called, or later, on rank 1.
    let all = [
        ("register_memory", 1, "rank 1 failed: plugin loop, device loop"),
        ("register_memory", 12, "rank 1 failed: plugin loop, device loop"),
        (
            "create",
            1,
            "rank 1 failed: plugin loop, device loop0:1: loop0 port 1: create was told to fail",
        ),
        (
            "create",
            3,
            "rank 1 failed: plugin loop, device loop0:1: loop0 port 1: create was told to fail",
        ),
        ("join", 1, "rank 1 failed: plugin loop, device loop"),
        ("join", 4, "rank 1 failed: plugin loop, device loop"),
        (
            "poll",
            1,
            "rank 1 failed: plugin loop: loop0 port 1: poll was told to fail",
        ),
        (
            "poll",
            400,
            "rank 1 failed: plugin loop: loop0 port 1: poll was told to fail",
        ),
    ];
    for (function, call, wanted) in all {
        let said = said_by_all(&format!("{function}:{call}:1"), "fails");
        for said in said {
            assert!(
                said.contains(wanted) && said.contains(&format!("{function} was told to fail")),
                "{function}:{call}: {said}"
            );
        }
    }
    let said = said_by_all("arm:1:1", "sleeps");
    let wanted = "rank 1 failed: plugin loop: loop0 port 1: arm was told to fail";
    assert!(said.iter().all(|said| said.contains(wanted)), "{said:?}");
    // A connection that fails is one of two ranks.
    for (function, wanted) in [
        ("write", "write was told to fail"),
        ("connection", "port 1: it was told to fail"),
    ] {
        let said = said_by_all(&format!("{function}:40:1"), "fails");
        let named = |said: &String| said.contains(" was lost (plugin loop, device loop");
        assert!(
            said.iter().all(named) && said.iter().any(|said| said.contains(wanted)),
            "{said:?}"
        );
    }
    // At init the others hear of it, and the rank itself says why.
    for function in ["open", "device"] {
        let said = said_by_all(&format!("{function}:1:1"), "fails");
        assert!(
            said[1].contains(&format!("plugin loop: loop0 port 1: {function} was told to fail")),
            "{said:?}"
        );
        for other in [0, 2] {
            assert!(
                said[other].contains("plugin loop cannot be used on rank 1"),
                "{said:?}"
            );
        }
    }
}

#[test]
fn a_call_whose_last_write_fails_tells_of_it() {
    let mut ranks = start(2, &[("CCL_NET_LOOP_FAIL", "write:1:1")], "sends-once");
    for rank in &mut ranks {
        let said = rank.said();
        assert!(
            said.contains("rank 0 was lost (plugin loop, device loop0:1")
                && said.contains("write was told to fail"),
            "{said}"
        );
    }
}

#[test]
fn who_waits_for_another_rank_tells_of_a_lost_message() {
    // Rank 1 loses one to rank 2, and waits for rank 0, which waits for rank 2.
    let settings = [("CCL_NET_LOOP_FAIL", "write_bytes:1:1"), ("CCL_DEBUG", "warn")];
    let mut ranks = start(3, &settings, "circle");
    for rank in &mut ranks {
        let said = rank.said();
        assert!(
            said.contains("rank 2 was lost (plugin loop, device loop")
                && said.contains("write_bytes was told to fail"),
            "{said}"
        );
    }
    let log = ranks[1].log();
    assert!(
        log.contains("link: a connection with rank 2 has failed: "),
        "{log}"
    );
}

/// What three ranks say of a failure.
fn said_by_all(failure: &str, role: &str) -> Vec<String> {
    let mut ranks = start(3, &[("CCL_NET_LOOP_FAIL", failure)], role);
    ranks.iter_mut().map(Rank::said).collect()
}

#[test]
fn without_a_device_all_use_what_else_there_is() {
    let settings = [
        ("CCL_NET_LOOP_FAIL", "open:1:1"),
        ("CCL_TRANSPORT", "auto"),
        ("CCL_DEBUG", "info"),
    ];
    let mut ranks = start(3, &settings, "falls-back");
    assert!(ranks.iter_mut().all(|rank| rank.said() == "shm 3"));
    for rank in &mut ranks {
        let log = rank.log();
        assert!(
            log.contains("cannot be used on rank 1, and is not needed on one host") && !log.contains("WARN"),
            "{log}"
        );
    }
}
