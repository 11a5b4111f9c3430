//! The C ABI as C and C++ programs meet it: `tests/c/*` and the examples, compiled against `include/ccl.h`,
//! linked with `libccl.so` and run.

#[cfg(feature = "cuda")]
#[path = "common/compile.rs"]
mod compile;

use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    thread,
    time::{Duration, Instant},
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const C: (&str, &str) = ("cc", "-std=gnu11");
const CXX: (&str, &str) = ("c++", "-std=gnu++17");

/// Far more than any program needs, so that one that hangs ends as a failure.
const LONGEST: Duration = Duration::from_secs(240);

/// The folder of `libccl.so` as cargo built it for this test: this program's own. (`cargo build` puts it a folder
/// higher, where an older one may lie.)
fn library_folder() -> PathBuf {
    let me = env::current_exe().unwrap();
    let folder = me.parent().unwrap().to_path_buf();
    assert!(
        folder.join("libccl.so").is_file(),
        "cargo left no libccl.so in {}",
        folder.display()
    );
    folder
}

/// Runs `command` to its end and returns its output.
fn output_of(command: &mut Command) -> String {
    let shown = format!("{command:?}");
    let output = command.output().unwrap_or_else(|error| {
        panic!("{shown}: {error}. These tests need a C and a C++ compiler and binutils: install gcc, g++ and binutils")
    });
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{shown}: {}\n{}",
        output.status,
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// Compiles a program with all warnings as errors, linked with the library by `-lccl`.
fn build_with(source: &str, (compiler, standard): (&str, &str), flags: &[&str]) -> PathBuf {
    let folder = library_folder();
    let named = flags.iter().filter(|flag| !flag.contains('/'));
    let name = [source].iter().chain(named).copied().collect::<String>();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name.replace(['/', '.', ',', '='], "-"));
    let mut command = Command::new(compiler);
    command.args([
        standard,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-g",
        "-O1",
        "-pthread",
    ]);
    command.args(flags);
    command.arg(Path::new(ROOT).join(source)).arg("-o").arg(&program);
    command
        .arg(format!("-I{ROOT}/include"))
        .arg(format!("-L{}", folder.display()))
        .arg("-lccl");
    command.arg(format!("-Wl,-rpath,{}", folder.display()));
    output_of(&mut command);
    program
}

fn build_and_run(source: &str, language: (&str, &str)) {
    run(&build_with(source, language, &[]));
}

fn run(program: &Path) {
    let source = program.display();
    // In a file, so that a program that says much never waits, and that what it said goes with the test's outcome.
    let said = program.with_extension("out");
    let file = fs::File::create(&said).unwrap();
    let mut child = Command::new(program)
        // The library is found by the program's own path alone.
        .env_remove("LD_LIBRARY_PATH")
        .stdin(Stdio::null())
        .stdout(file.try_clone().unwrap())
        .stderr(file)
        .spawn()
        .unwrap();
    let began = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break Some(status),
            None if began.elapsed() > LONGEST => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => thread::sleep(Duration::from_millis(10)),
        }
    };
    println!("{}", fs::read_to_string(&said).unwrap());
    let status = status.unwrap_or_else(|| panic!("{source} did not end in {LONGEST:?}"));
    assert!(status.success(), "{source}: {status}");
}

#[test]
fn all_reduce_between_forked_processes() {
    build_and_run("tests/c/allreduce.c", C);
}

/// What `scripts/bench-peers` measures with: it ends with an error when a result is wrong.
#[test]
fn the_benchmark_beside_other_libraries() {
    run(&build_with("benches/peers/collectives.c", C, &["-DWITH_CCL"]));
}

#[test]
fn pre_multiplied_sums_between_forked_processes() {
    build_and_run("tests/c/premulsum.c", C);
}

#[test]
fn memory_that_forked_processes_read_where_it_lies() {
    build_and_run("tests/c/memory.c", C);
}

#[test]
fn more_elements_than_32_bits_count() {
    build_and_run("tests/c/large.c", C);
}

#[test]
fn broadcast_between_forked_processes() {
    build_and_run("tests/c/broadcast.c", C);
}

#[test]
fn ranks_meet_by_environment() {
    build_and_run("tests/c/environment.c", C);
}

#[test]
fn the_other_collectives_between_forked_processes() {
    build_and_run("tests/c/collectives.c", C);
}

#[test]
fn groups_messages_and_streams() {
    build_and_run("tests/c/groups.c", C);
}

#[test]
fn limits_of_the_system_are_named() {
    build_and_run("tests/c/limits.c", C);
}

#[test]
fn calls_that_differ_where_ranks_only_send_are_told() {
    build_and_run("tests/c/onesided.c", C);
}

#[test]
fn blocks_of_any_length_between_forked_processes() {
    build_and_run("tests/c/vector.c", C);
}

#[test]
fn barriers_between_forked_processes() {
    build_and_run("tests/c/barrier.c", C);
}

#[test]
fn bad_arguments_are_refused_and_do_no_harm() {
    build_and_run("tests/c/errors.c", C);
}

#[test]
fn failures_of_other_ranks_are_told() {
    build_and_run("tests/c/failures.c", C);
}

#[test]
fn ranks_whose_calls_differ_are_told_both() {
    build_and_run("tests/c/mismatch.c", C);
}

#[test]
fn communicators_are_made_of_others_and_of_one_process() {
    build_and_run("tests/c/split.c", C);
}

#[test]
fn going_on_without_ranks_or_with_more() {
    build_and_run("tests/c/recover.c", C);
}

#[test]
fn strange_programs_are_served() {
    build_and_run("tests/c/strange.c", C);
}

#[test]
fn locks_that_are_taken_before_a_fork_are_no_trap() {
    build_and_run("tests/c/forks.c", C);
}

#[test]
fn protected_memory_is_the_matter_of_the_program_that_passed_it() {
    build_and_run("tests/c/protected.c", C);
}

#[test]
fn ranks_that_are_threads_of_one_process() {
    build_and_run("tests/c/threads.c", C);
}

/// The ranks are forked, and the copy of the parent's memory must have nothing that is lost.
#[test]
fn sanitizers_find_nothing_in_forked_ranks() {
    let probe = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sanitizer-probe");
    let mut compiler = Command::new("cc");
    compiler.args(["-fsanitize=address,undefined", "-x", "c", "-", "-o"]);
    compiler.arg(&probe).stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = compiler.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"int main(void) { return 0; }")
        .unwrap();
    if !child.wait().unwrap().success() {
        println!("skipped: the C compiler has no address sanitizer: install libasan and libubsan");
        return;
    }
    let program = build_with("examples/allreduce.c", C, &["-fsanitize=address,undefined"]);
    for _ in 0..10 {
        run(&program);
    }
}

#[test]
fn numbers_and_layouts_stay() {
    build_and_run("tests/c/constants.c", C);
}

#[test]
fn cxx_programs_build_and_run() {
    build_and_run("tests/c/allreduce.cpp", CXX);
}

/// Builds and runs the examples whose files have this extension.
fn examples_build_and_run(extension: &str, language: (&str, &str)) {
    let files = fs::read_dir(Path::new(ROOT).join("examples")).unwrap();
    let files = files.map(|entry| entry.unwrap().path());
    let mut examples: Vec<PathBuf> = files
        .filter(|file| file.extension().is_some_and(|of| of == extension))
        .collect();
    examples.sort();
    assert!(examples.len() >= 4, "{examples:?}");
    for example in examples {
        let name = example.strip_prefix(ROOT).unwrap().to_str().unwrap();
        build_and_run(name, language);
    }
}

#[test]
fn the_examples_in_c_build_and_run() {
    examples_build_and_run("c", C);
}

#[test]
fn the_examples_in_cxx_build_and_run() {
    examples_build_and_run("cpp", CXX);
}

/// Three processes are one pipeline, and not three of forked ranks.
#[test]
fn an_example_is_a_launcher_s_rank() {
    let program = build_with("examples/pipeline.c", C, &["-DLAUNCHED"]);
    let start = |rank: usize| {
        let mut command = Command::new(&program);
        command
            .env_remove("LD_LIBRARY_PATH")
            .env("CCL_TIMEOUT", "60")
            .envs([("RANK", rank.to_string()), ("WORLD_SIZE", "3".into())])
            // A name of the job like a port's; no port is used on one host.
            .env("MASTER_PORT", std::process::id().to_string());
        command.stdout(Stdio::piped()).spawn().unwrap()
    };
    let ranks: Vec<_> = (0..3).map(start).collect();
    let outputs: Vec<_> = ranks
        .into_iter()
        .map(|rank| rank.wait_with_output().unwrap())
        .collect();
    assert!(
        outputs.iter().all(|output| output.status.success()),
        "{outputs:?}"
    );
    assert!(outputs[0].stdout.starts_with(b"3 stages,"), "{outputs:?}");
    assert!(
        outputs[1..].iter().all(|output| output.stdout.is_empty()),
        "{outputs:?}"
    );
}

/// Runs the README's program, whose ranks are forked, with these settings: what it says on standard output and on error.
fn log_of(settings: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| build_with("examples/allreduce.c", C, &["-DLOG"]));
    let output = Command::new(program)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("CCL_DEBUG")
        .env_remove("CCL_DEBUG_FILE")
        .env("CCL_TIMEOUT", "60")
        .envs(settings.iter().copied())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = |text: Vec<u8>| {
        String::from_utf8(text)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    };
    (lines(output.stdout), lines(output.stderr))
}

/// All lines of a log of the README's program at level INFO, of its five processes.
fn check_log(lines: &[String]) {
    let mut processes = BTreeSet::new();
    for line in lines {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let [name, seconds, process, text] = words[..] else {
            panic!("{line:?} has another form")
        };
        assert!(name == "ccl" && seconds.parse::<f64>().is_ok(), "{line}");
        assert!(text.contains("INFO ") && !text.contains("DEBUG"), "{line}");
        processes.insert(process);
    }
    assert_eq!(processes.len(), 5, "the parent and four ranks: {lines:#?}");
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    for rank in 0..4 {
        for text in [
            "init: joined 4 ranks in",
            "init: transport",
            "schedule: allreduce by ",
            "end: left",
        ] {
            assert_eq!(
                count(&format!(" rank {rank}/4 INFO {text}")),
                1,
                "rank {rank}, {text}: {lines:#?}"
            );
        }
    }
    assert_eq!(count(" INFO id: made"), 1);
}

#[test]
fn ccl_debug_tells_on_standard_error_and_nowhere_else() {
    let (said, told) = log_of(&[]);
    assert_eq!((said.len(), told), (4, vec![]));
    let (said, told) = log_of(&[("CCL_DEBUG", "INFO")]);
    assert!(
        said.len() == 4 && said.iter().all(|line| line.ends_with(": 10")),
        "{said:?}"
    );
    check_log(&told);
    let (_, told) = log_of(&[("CCL_DEBUG", "trace")]);
    let some = |text: &str| told.iter().any(|line| line.contains(text));
    assert!(some("DEBUG link: to rank") && some("TRACE call: "), "{told:#?}");
    let memory = |line: &&String| line.contains("DEBUG memory: ");
    assert_eq!(
        told.iter().filter(memory).count(),
        8,
        "at the beginning and the end of each rank: {told:#?}"
    );
}

/// It loses lines instead: what it writes to is full before the first one.
#[test]
fn standard_error_that_nobody_reads_stops_nobody() {
    let (_pipe_s_reader, pipe) = std::io::pipe().unwrap();
    let (_socket_s_reader, socket) = UnixStream::pair().unwrap();
    for stderr in [OwnedFd::from(pipe), socket.into()] {
        stands_still(fs::File::from(stderr));
    }
}

fn stands_still(mut writer: fs::File) {
    let program = build_with("examples/allreduce.c", C, &["-DPIPE"]);
    rustix::io::ioctl_fionbio(&writer, true).unwrap();
    while writer.write(&[b'.'; 4096]).is_ok() {}
    rustix::io::ioctl_fionbio(&writer, false).unwrap();
    let output = Command::new(program)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("CCL_DEBUG_FILE")
        .envs([("CCL_DEBUG", "trace"), ("CCL_TIMEOUT", "60")])
        .stderr(writer)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout).lines().count(), 4);
}

#[test]
fn a_wrong_word_in_ccl_debug_is_told_once() {
    let (said, told) = log_of(&[("CCL_DEBUG", "loud")]);
    assert_eq!(said.len(), 4);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("CCL_DEBUG=loud") && told[0].contains("warn, info, debug or trace"));
}

#[test]
fn ccl_debug_file_takes_the_lines() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let read = |path: &Path| -> Vec<String> {
        let mode = fs::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        fs::read_to_string(path)
            .unwrap()
            .lines()
            .map(str::to_owned)
            .collect()
    };
    // One for each process.
    let each = in_folder("%h.%p.log");
    assert_eq!(
        log_of(&[("CCL_DEBUG", "1"), ("CCL_DEBUG_FILE", &each)]).1,
        [""; 0]
    );
    let files: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert_eq!(files.len(), 5, "{files:?}");
    check_log(&files.iter().flat_map(|file| read(file)).collect::<Vec<_>>());
    // One for all, to which a second run adds.
    let all = in_folder("all.log");
    for runs in 1..=2 {
        assert_eq!(
            log_of(&[("CCL_DEBUG", "info"), ("CCL_DEBUG_FILE", &all)]).1,
            [""; 0]
        );
        let lines = read(Path::new(&all));
        let ids = lines.iter().filter(|line| line.contains("id: made")).count();
        assert_eq!(ids, runs);
        let last = lines.iter().rposition(|line| line.contains("id: made")).unwrap();
        check_log(&lines[last..]);
    }
    // None: told, and no reason to fail.
    let (said, told) = log_of(&[("CCL_DEBUG", "info"), ("CCL_DEBUG_FILE", "/dev/null/x")]);
    let (warnings, lines): (Vec<_>, Vec<_>) = told.into_iter().partition(|line| line.starts_with("ccl: "));
    assert!(said.len() == 4 && warnings.len() == 5 && warnings[0].contains("cannot open /dev/null/x"));
    check_log(&lines);
}

/// Alone, in the strictest form of the language: no GNU extension, nothing included before.
#[test]
fn the_header_stands_alone() {
    for (compiler, standard, language) in [
        ("cc", "-std=c90", "c"),
        ("cc", "-std=c11", "c"),
        ("c++", "-std=c++17", "c++"),
        ("cc", "-std=c17", "c"),
        ("c++", "-std=c++20", "c++"),
    ] {
        let mut command = Command::new(compiler);
        command.args([
            standard,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            "-fsyntax-only",
            "-x",
            language,
        ]);
        command.args(["-include", "ccl.h", "/dev/null", &format!("-I{ROOT}/include")]);
        output_of(&mut command);
    }
}

/// The header's functions are the library's symbols, and nothing else is.
#[test]
fn only_the_header_s_functions_are_exported() {
    let header = fs::read_to_string(format!("{ROOT}/include/ccl.h")).unwrap();
    let declared: BTreeSet<&str> = header
        .lines()
        .filter(|line| !line.starts_with([' ', '#', '/']) && !line.starts_with("typedef"))
        .filter_map(|line| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect();
    let library = library_folder().join("libccl.so");
    let symbols = output_of(
        Command::new("nm")
            .args(["--dynamic", "--defined-only", "--format=just-symbols"])
            .arg(library),
    );
    let exported: BTreeSet<&str> = symbols.lines().collect();
    assert_eq!(exported, declared);
    assert!(declared.contains("cclAllReduce") && declared.iter().all(|name| name.starts_with("ccl")));
}

#[test]
fn the_soname_is_that_of_the_link() {
    let folder = library_folder();
    let dynamic = output_of(
        Command::new("readelf")
            .arg("--dynamic")
            .arg(folder.join("libccl.so")),
    );
    assert!(dynamic.contains("Library soname: [libccl.so.0]"), "{dynamic}");
    assert_eq!(
        fs::read_link(folder.join("libccl.so.0")).unwrap(),
        Path::new("libccl.so")
    );
}

/// A stand-in for the CUDA driver, in a folder of its own: the flags by which a program is linked with it.
#[cfg(feature = "cuda")]
fn stand_in(name: &str, flags: &[&str]) -> [String; 3] {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::create_dir_all(&folder).unwrap();
    compile::cuda_driver(&folder.join("libcuda.so.1"), flags);
    let folder = folder.display();
    [
        format!("-L{folder}"),
        "-l:libcuda.so.1".to_owned(),
        format!("-Wl,-rpath,{folder}"),
    ]
}

/// Builds a program of `tests/cuda` with a stand-in and runs it.
#[cfg(feature = "cuda")]
fn with_stand_in(source: &str, name: &str, flags: &[&str]) {
    let linked = stand_in(name, flags);
    let all: Vec<&str> = ["-Wl,--no-as-needed"]
        .into_iter()
        .chain(linked.iter().map(String::as_str))
        .collect();
    run(&build_with(source, C, &all));
}

#[cfg(feature = "cuda")]
#[test]
fn device_memory_of_forked_processes_and_threads() {
    with_stand_in("tests/cuda/collectives.c", "cuda-collectives", &[]);
}

#[cfg(feature = "cuda")]
#[test]
fn device_memory_that_cannot_be_used() {
    with_stand_in("tests/cuda/faults.c", "cuda-faults", &[]);
}

/// The same where the data stay on the devices.
#[cfg(feature = "cuda")]
#[test]
fn device_memory_by_windows() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-kernels");
    fs::create_dir_all(&folder).unwrap();
    compile::cuda_driver_with_kernels(&folder.join("libcuda.so.1"));
    let folder = folder.display();
    let (from, path) = (format!("-L{folder}"), format!("-Wl,-rpath,{folder}"));
    let linked = ["-DDIRECT", "-Wl,--no-as-needed", &from, "-l:libcuda.so.1", &path];
    for source in ["collectives.c", "faults.c", "graphs.c"].map(|name| format!("tests/cuda/{name}")) {
        run(&build_with(&source, C, &linked));
    }
}

#[cfg(feature = "cuda")]
#[test]
fn network_plugins_are_told_the_gpu() {
    let plugin = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libccl_net_gpu.so");
    compile::library("tests/cuda/net_gpu.c", &plugin, &["-Iinclude"]);
    let plugin = format!("-DPLUGIN=\"{}\"", plugin.display());
    let linked = stand_in("cuda-near", &[]);
    let all: Vec<&str> = ["-Wl,--no-as-needed", &plugin]
        .into_iter()
        .chain(linked.iter().map(String::as_str))
        .collect();
    run(&build_with("tests/cuda/near.c", C, &all));
}

#[cfg(feature = "cuda")]
#[test]
fn a_driver_that_is_too_old() {
    with_stand_in("tests/cuda/old.c", "cuda-old", &["-DWITHOUT_WAITS"]);
}
