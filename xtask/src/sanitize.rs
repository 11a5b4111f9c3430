//! Sanitizers: the library and the programs of `tests/c`, both instrumented.
//!
//! AddressSanitizer finds accesses outside of what is allocated, and leaks, in every process of a program. ThreadSanitizer finds
//! races between the threads of one process, so that it runs the programs whose ranks are threads; `--cfg ccl_one_mapping` has them
//! share one mapping of each segment, since it knows memory by its address. It sees neither inline assembly nor memory
//! shared between processes. Both see system calls by way of the C library (`--cfg rustix_use_libc`).
//!
//! The compiler is the stable one, with what of it is not stable allowed. ThreadSanitizer needs a standard library that is
//! instrumented, too, and builds it.

use crate::{
    cargo::command,
    run::{each, output_of, succeed},
    tools::Need,
};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A sanitizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sanitizer {
    Address,
    Thread,
}

/// Which to run.
pub(crate) fn from_args(args: &[&str]) -> Result<Vec<Sanitizer>, String> {
    let named = |arg: &&str| match *arg {
        "address" => Ok(Sanitizer::Address),
        "thread" => Ok(Sanitizer::Thread),
        other => Err(format!(
            "there is no sanitizer {other}: there are address and thread"
        )),
    };
    match args {
        [] => Ok(vec![Sanitizer::Address, Sanitizer::Thread]),
        args => args.iter().map(named).collect(),
    }
}

/// Builds and runs with each of them.
///
/// # Errors
/// What they found is printed; the names of the programs.
pub(crate) fn run(root: &Path, sanitizers: &[Sanitizer]) -> Result<(), String> {
    sanitizers
        .iter()
        .try_for_each(|sanitizer| sanitizer.run(root, &sanitizer.build(root)?))
}

impl Sanitizer {
    fn name(self) -> &'static str {
        match self {
            Sanitizer::Address => "address",
            Sanitizer::Thread => "thread",
        }
    }

    /// The programs, with the library in `folder`.
    pub(crate) fn run(self, root: &Path, folder: &Path) -> Result<(), String> {
        let runtime = self.runtime()?;
        let name = |(program, settings): &(String, Settings)| {
            format!("{} sanitizer: {program} {}", self.name(), words(settings))
        };
        each(self.runs(root)?, name, |run| {
            let (program, settings) = run;
            let built = self.compile(root, folder, &runtime, program, settings)?;
            self.start(&built, settings)?;
            Ok(format!("{}: ok", name(run)))
        })
    }

    /// Programs, and the variables to run them with.
    fn runs(self, root: &Path) -> Result<Vec<(String, Settings)>, String> {
        if self == Sanitizer::Thread {
            let threads = |&settings| ("threads".to_owned(), settings);
            return Ok(THREADS.iter().map(threads).collect());
        }
        let folder = root.join("tests/c");
        let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let files = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let programs = files.filter_map(|name| name.strip_suffix(".c").map(str::to_owned));
        let mut programs: Vec<String> = programs.filter(|name| name != TOO_LARGE).collect();
        programs.sort_by_key(|name| LONG.contains(&name.as_str())); // these begin first
        let plain = programs.into_iter().map(|name| (name, &[][..]));
        Ok([
            ("threads".to_owned(), OVER_TCP),
            ("collectives".to_owned(), OVER_TCP),
        ]
        .into_iter()
        .chain(plain)
        .collect())
    }

    /// Builds the library; the folder that it is in.
    pub(crate) fn build(self, root: &Path) -> Result<PathBuf, String> {
        let host = output_of(Command::new("rustc").args(["--print", "host-tuple"]))?;
        let (host, name) = (host.trim(), self.name());
        let target = format!("target/sanitize/{name}");
        println!("building for {host}, with the {name} sanitizer, in {target}");
        let mut cargo = command(
            root,
            "rustc --lib --crate-type cdylib --locked --package ccl --no-default-features",
        );
        // With a target given, build scripts and macros are compiled without.
        cargo.args(["--target", host, "--target-dir", &target]);
        let mut flags = format!("-Zsanitizer={name} --cfg rustix_use_libc");
        if self == Sanitizer::Thread {
            if !Need::RustSource.is_there(root) {
                return Err("the thread sanitizer needs rust-src: rustup component add rust-src".to_owned());
            }
            flags += " --cfg ccl_one_mapping";
            cargo.arg("-Zbuild-std=std,panic_unwind");
        }
        cargo
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", flags)
            .env("CARGO_INCREMENTAL", "0")
            .env("CARGO_PROFILE_DEV_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_DEV_DEBUG", "0");
        succeed(&mut cargo)?;
        Ok(root.join(target).join(host).join("debug"))
    }

    /// The sanitizer's own library, which the compiler comes with.
    fn runtime(self) -> Result<PathBuf, String> {
        let folder = output_of(Command::new("rustc").args(["--print", "target-libdir"]))?;
        let end = match self {
            Sanitizer::Address => "_rt.asan.a",
            Sanitizer::Thread => "_rt.tsan.a",
        };
        let entries = fs::read_dir(folder.trim()).map_err(|error| format!("{}: {error}", folder.trim()))?;
        let mut files = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let found = files.find(|file| file.to_string_lossy().ends_with(end));
        found.ok_or_else(|| format!("the compiler has no library whose name ends with {end}"))
    }

    /// A program, beside the library. Its C is instrumented by the C compiler, for the runtime of the other one.
    fn compile(
        self,
        root: &Path,
        folder: &Path,
        runtime: &Path,
        name: &str,
        settings: Settings,
    ) -> Result<PathBuf, String> {
        let program = folder.join(format!("{name}-{}", words(settings).replace(' ', "-")));
        let object = program.with_extension("o");
        let mut compile = Command::new("cc");
        compile
            .args(["-std=gnu11", "-g", "-O1", "-pthread", "-c"])
            .arg(format!("-fsanitize={}", self.name()))
            .arg(format!("-I{}", root.join("include").display()))
            .arg(root.join("tests/c").join(name).with_extension("c"))
            .arg("-o")
            .arg(&object);
        succeed(&mut compile)?;
        let mut link = Command::new("cc");
        link.args(["-pthread", "-rdynamic"])
            .arg(&object)
            .arg("-Wl,--whole-archive")
            .arg(runtime)
            .arg("-Wl,--no-whole-archive")
            .arg(format!("-L{}", folder.display()))
            .arg(format!("-Wl,-rpath,{}", folder.display()))
            .args(["-lccl", "-lm", "-ldl", "-lrt", "-o"])
            .arg(&program);
        succeed(&mut link)?;
        Ok(program)
    }

    /// Runs it to its end; what it says goes with the failure. Programs end themselves by an alarm where they hang.
    fn start(self, program: &Path, settings: Settings) -> Result<(), String> {
        let said = program.with_extension("out");
        let file = fs::File::create(&said).map_err(|error| format!("{}: {error}", said.display()))?;
        let twin = file.try_clone().map_err(|error| error.to_string())?;
        let mut timed = Command::new("timeout");
        timed
            .args(["--signal=KILL", "300"])
            .arg(program)
            .env_remove("LD_LIBRARY_PATH")
            .env("ASAN_OPTIONS", "detect_leaks=1")
            .env("TSAN_OPTIONS", "history_size=4")
            .envs(settings.iter().copied())
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(twin);
        let ended = succeed(&mut timed);
        let text = fs::read(&said).map_err(|error| format!("{}: {error}", said.display()))?;
        let text = String::from_utf8_lossy(&text);
        // Also of a process that was meant to fail, or whose status nobody asked for.
        let found = text.contains("ERROR: ") || text.contains("WARNING: ThreadSanitizer");
        match (ended, found) {
            (Ok(()), false) => Ok(()),
            (Ok(()), true) => Err(text.into_owned()),
            (Err(why), _) => Err(format!("{text}\n{why}")),
        }
    }
}

type Settings = &'static [(&'static str, &'static str)];

fn words(settings: Settings) -> String {
    let words = settings.iter().map(|(name, value)| format!("{name}={value}"));
    words.collect::<Vec<_>>().join(" ")
}

const OVER_TCP: Settings = &[("CCL_TRANSPORT", "tcp")];

/// What the ranks that are threads run with.
const THREADS: [Settings; 3] = [&[], &[("CCL_DIRECT", "off"), ("CCL_CMA", "off")], OVER_TCP];

/// Takes minutes, for memory of more than 4 GiB that is handled as any other.
const TOO_LARGE: &str = "large";

/// Those that wait longest.
const LONG: [&str; 4] = ["split", "failures", "memory", "mismatch"];
