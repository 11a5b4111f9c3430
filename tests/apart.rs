//! Ranks that the system keeps from each other, or from handing things over for a while.

mod common;

use ccl::{Communicator, Config, Op, UniqueId};
use common::process::{Rank, role};
use rustix::{
    io::Errno,
    net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg},
    process::{Resource, Rlimit, getuid, setrlimit},
};
use std::{
    env,
    fs::{self, Permissions},
    io::{self, BufRead, BufReader, IoSlice, Read},
    mem::MaybeUninit,
    os::{
        fd::AsFd,
        unix::{fs::PermissionsExt, net::UnixStream, process::CommandExt},
    },
    path::Path,
    process::{Child, Command, Stdio},
};

/// What the process of a rank does.
#[test]
fn roles() {
    if env::var_os("CCL_TEST_FILL").is_some() {
        return hand_over_too_much();
    }
    let Some((_, id, ranks, rank)) = role() else {
        return;
    };
    if !keep_apart() {
        return println!("says: skipped");
    }
    let comm = Communicator::init(ranks, &id, rank, &Config::default()).unwrap();
    let mut data = [1u32; 100];
    comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
    assert_eq!(data, [ranks as u32; 100]);
    println!("says: done");
}

/// Has this thread, and all that it starts, see no Unix sockets with abstract names but its own, as a container may. False where the
/// kernel cannot do that.
fn keep_apart() -> bool {
    let abstract_sockets = [0u64, 0, 1];
    // SAFETY: they read so many bytes there, and a descriptor that is this test's own.
    unsafe {
        let rules = libc::syscall(
            libc::SYS_landlock_create_ruleset,
            abstract_sockets.as_ptr(),
            size_of_val(&abstract_sockets),
            0,
        );
        rules >= 0
            && libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::syscall(libc::SYS_landlock_restrict_self, rules, 0) == 0
    }
}

#[test]
fn ranks_whose_unix_sockets_are_kept_apart_use_tcp() {
    if !format!("{:?}", UniqueId::new().unwrap()).contains("tcp:") {
        println!("skipped: there is no network");
        return;
    }
    let mut ranks = Rank::start_all(3, &[], "apart");
    let ends: Vec<String> = ranks.iter_mut().map(Rank::said).collect();
    match ends.contains(&"skipped".to_owned()) {
        true => println!("skipped: the kernel's Landlock keeps no sockets apart"),
        false => assert_eq!(ends, ["done"; 3]),
    }
}

/// Descriptors that one process has under way.
const MOST: u64 = 256;

/// Sends so many descriptors that nobody takes that this user may send no more, until there is no more to read.
fn hand_over_too_much() {
    let limit = Rlimit {
        current: Some(MOST),
        maximum: Some(MOST),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
    let (near, _far) = UnixStream::pair().unwrap();
    let fds = [near.as_fd(); 200];
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(200))];
        let mut beside = SendAncillaryBuffer::new(&mut space);
        assert!(beside.push(SendAncillaryMessage::ScmRights(&fds)));
        match sendmsg(&near, &[IoSlice::new(b"x")], &mut beside, SendFlags::DONTWAIT) {
            Ok(_) => {}
            Err(Errno::TOOMANYREFS) => break,
            Err(e) => panic!("{e}"),
        }
    }
    println!("says: full");
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

#[test]
fn what_cannot_be_handed_over_yet_is_handed_over_later() {
    if !getuid().is_root() {
        println!("skipped: only the superuser can be a user of whom nothing else is under way");
        return;
    }
    let folder = tempfile::tempdir_in("/tmp").unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let user = 60_000 + std::process::id() % 5000;
    let [test, perf] = [
        &env::current_exe().unwrap(),
        Path::new(env!("CARGO_BIN_EXE_ccl-perf")),
    ]
    .map(|program| {
        let copy = folder.path().join(program.file_name().unwrap());
        fs::copy(program, &copy).unwrap();
        fs::set_permissions(&copy, Permissions::from_mode(0o755)).unwrap();
        copy
    });
    let start = |program: &Path, line: &str, settings: &[(&str, &str)]| -> Child {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("ulimit -n {MOST}; exec {} {line}", program.display()),
        ]);
        command
            .uid(user)
            .gid(user)
            .current_dir("/")
            .envs(settings.iter().copied());
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    };
    let mut fills = start(&test, "--exact roles --nocapture", &[("CCL_TEST_FILL", "1")]);
    let mut said = BufReader::new(fills.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(said.any(|line| line.ends_with("says: full")));

    let rank = |rank: &str| {
        let settings = [
            ("RANK", rank),
            ("WORLD_SIZE", "2"),
            ("CCL_TRANSPORT", "shm"),
            ("CCL_DEBUG", "debug"),
        ];
        start(&perf, "allreduce -b 8 -e 8 -n 5", &settings)
    };
    let mut ranks = [rank("0"), rank("1")];
    let told = BufReader::new(ranks[0].stderr.take().unwrap());
    let mut told = told.lines().map_while(Result::ok);
    assert!(told.any(|line| line.contains("Too many references")));
    drop(fills.stdin.take());
    let rest: Vec<String> = told.collect();
    for rank in ranks {
        let output = rank.wait_with_output().unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{err}\n{}", rest.join("\n"));
    }
    assert!(fills.wait().unwrap().success());
}
