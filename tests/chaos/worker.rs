//! A rank: calls in an order that a seed gives, checks every result, and tells the driver what came of it.

use ccl::{Cause, Communicator, Config, Error, Op, UniqueId};
use std::{
    fs,
    io::BufRead,
    process,
    str::FromStr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

/// The environment variable with a [`Spec`].
pub(crate) const SPEC: &str = "CCL_CHAOS_RANK";

/// What a rank is to do.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Spec {
    pub(crate) seed: u64,
    pub(crate) ranks: usize,
    pub(crate) rank: usize,
    pub(crate) timeout: Duration,
    /// Whether those that are left go on without the others.
    pub(crate) shrinks: bool,
    /// What it does to itself, and after how many calls.
    pub(crate) act: String,
    pub(crate) after: u32,
    /// The unique id in hexadecimal digits; `-`: it makes one.
    pub(crate) id: String,
}

impl Spec {
    pub(crate) fn text(&self) -> String {
        let Spec {
            seed,
            ranks,
            rank,
            timeout,
            shrinks,
            act,
            after,
            id,
        } = self;
        let timeout = timeout.as_millis();
        format!("{seed} {ranks} {rank} {timeout} {shrinks} {act} {after} {id}")
    }
}

impl FromStr for Spec {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Spec, Self::Err> {
        let words: Vec<&str> = text.split(' ').collect();
        Ok(Spec {
            seed: words[0].parse()?,
            ranks: words[1].parse()?,
            rank: words[2].parse()?,
            timeout: Duration::from_millis(words[3].parse()?),
            shrinks: words[4] == "true",
            act: words[5].to_owned(),
            after: words[6].parse()?,
            id: words[7].to_owned(),
        })
    }
}

/// What a process may have more of, once its communicators are gone: descriptors for its control thread, which has one in reserve, and
/// its pool, and the pool's mapping.
pub(crate) const MOST_MORE: [usize; 2] = [7, 1];

/// Is that rank, to the end.
pub(crate) fn run(spec: &Spec) {
    let before = held();
    be(spec);
    // What strangers had open, and the last words to others, take a moment.
    let mut after = held();
    let until = Instant::now() + spec.timeout / 2;
    while Instant::now() < until {
        if after[0] <= before[0] + MOST_MORE[0] && after[1] <= before[1] + MOST_MORE[1] {
            break;
        }
        thread::sleep(Duration::from_millis(10));
        rinse();
        after = held();
    }
    say(&format!(
        "end {} {} {} {}",
        before[0], after[0], before[1], after[1]
    ));
}

/// Uses the pool, as what others have left there is found when it is used next.
fn rinse() {
    let id = UniqueId::new().unwrap();
    thread::scope(|scope| {
        for rank in 0..2 {
            let id = &id;
            scope.spawn(move || {
                let comm = Communicator::init(2, id, rank, &Config::default()).unwrap();
                comm.all_reduce_in_place(&mut [0u32; 1000], Op::Sum).unwrap();
            });
        }
    });
}

fn be(spec: &Spec) {
    let mut config = Config::default();
    config.timeout = Some(spec.timeout);
    let id = match spec.id.as_str() {
        "-" => {
            let id = UniqueId::new().unwrap();
            let hex: String = id.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
            say(&format!("id {hex}"));
            id
        }
        hex => {
            let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
            UniqueId::from_bytes(std::array::from_fn(byte)).unwrap()
        }
    };
    let comm = match Communicator::init(spec.ranks, &id, spec.rank, &config) {
        Ok(comm) => comm,
        Err(error) => return say(&format!("no-init {} {error}", now())),
    };
    if spec.act == "fork" {
        fork();
    }
    say("begun");
    if spec.rank == 0 {
        thread::spawn(await_stop);
    }
    let mut calls = Calls::new(spec.seed);
    let error = loop {
        if spec.act != "-" && spec.act != "fork" && calls.made == spec.after {
            end_by(&spec.act);
        }
        match calls.next(&comm) {
            Ok(false) => {}
            Ok(true) => return say("done"),
            Err(error) => break error,
        }
    };
    say(&format!("failed {} {} {error}", now(), kind(&error)));
    if spec.shrinks {
        let smaller = loop {
            match comm.shrink(&[], None) {
                Ok(smaller) => break smaller,
                // Others may have known more, or fewer, of the dead.
                Err(Error::Init { .. }) => {}
                Err(error) => return say(&format!("no-shrink {} {error}", now())),
            }
        };
        let mut calls = Calls::new(spec.seed);
        for _ in 0..20 {
            if let Err(error) = calls.next(&smaller) {
                return say(&format!("no-shrink {} {error}", now()));
            }
        }
        say(&format!("shrunk {} {}", now(), smaller.ranks()));
    }
}

/// Whom an error blames.
fn kind(error: &Error) -> String {
    let (Error::Failed(cause) | Error::Closed(cause)) = error else {
        return "error".to_owned();
    };
    match cause {
        Cause::Lost { rank, .. } => format!("lost:{rank}"),
        Cause::Late { ranks, .. } => {
            let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
            format!("late:{}", ranks.join(","))
        }
        Cause::Broken { rank, .. } => format!("broken:{rank}"),
        _ => "other".to_owned(),
    }
}

/// Whether the driver wants an end. Rank 0 hears it, and tells the others in one of the calls.
static STOP: AtomicBool = AtomicBool::new(false);

fn await_stop() {
    let _ = std::io::stdin().lock().read_line(&mut String::new());
    STOP.store(true, Relaxed);
}

/// Calls in the same order on all ranks.
struct Calls {
    random: fastrand::Rng,
    made: u32,
}

impl Calls {
    fn new(seed: u64) -> Calls {
        Calls {
            random: fastrand::Rng::with_seed(seed),
            made: 0,
        }
    }

    /// Makes one; whether that was the last.
    fn next(&mut self, comm: &Communicator) -> Result<bool, Error> {
        let (n, me, k) = (comm.ranks(), comm.rank(), self.made);
        self.made += 1;
        let most = [4, 100, 3000, 50_000][self.random.usize(0..4)];
        let (what, len) = (self.random.u32(0..7), self.random.usize(0..=most / n));
        let root = self.random.usize(0..64) % n;
        let of =
            |rank: usize| move |i: usize| (rank as u32 + 1).wrapping_mul(i as u32 ^ 0x55).wrapping_add(k);
        let ours: Vec<u32> = (0..n * len).map(of(me)).collect();
        let sum = |i: usize| (0..n).fold(0u32, |sum, rank| sum.wrapping_add(of(rank)(i)));
        let block = me * len..(me + 1) * len;
        let (got, want): (Vec<u32>, Vec<u32>) = match what {
            0 => {
                let stop = u8::from(me == 0 && STOP.load(Relaxed));
                let mut stops = [stop];
                comm.all_reduce_in_place(&mut stops, Op::Max)?;
                return Ok(stops[0] == 1);
            }
            1 => {
                let mut all = ours;
                comm.all_reduce_in_place(&mut all, Op::Sum)?;
                (all, (0..n * len).map(sum).collect())
            }
            2 => {
                let mut all = ours;
                comm.broadcast_in_place(&mut all, root)?;
                (all, (0..n * len).map(of(root)).collect())
            }
            3 => {
                let mut all = vec![0; n * len];
                comm.all_gather(&ours[..len], &mut all)?;
                (all, (0..n).flat_map(|rank| (0..len).map(of(rank))).collect())
            }
            4 => {
                let mut part = vec![0; len];
                comm.reduce_scatter(&ours, &mut part, Op::Sum)?;
                (part, block.map(sum).collect())
            }
            5 => {
                let mut all = vec![0; n * len];
                comm.all_to_all(&ours, &mut all)?;
                (all, (0..n).flat_map(|rank| block.clone().map(of(rank))).collect())
            }
            _ => {
                comm.barrier()?;
                return Ok(false);
            }
        };
        if got != want {
            say(&format!("wrong call {k} ({what}) of {len} elements"));
            process::exit(3);
        }
        Ok(false)
    }
}

/// Ends this process without a goodbye.
fn end_by(act: &str) -> ! {
    say(&format!("gone {}", now()));
    match act {
        "abort" => process::abort(),
        "segv" => {
            // The default, as in a program that is not Rust.
            // SAFETY: no handler is set, and the process ends by it.
            unsafe {
                libc::signal(libc::SIGSEGV, libc::SIG_DFL);
                libc::raise(libc::SIGSEGV);
            }
            process::abort()
        }
        // SAFETY: it ends the process, without what is done at exit.
        _ => unsafe { libc::_exit(0) },
    }
}

/// Leaves a child behind, which does nothing for a minute.
fn fork() {
    // SAFETY: the child calls nothing but these two, which are safe after a fork of several threads.
    let child = unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::sleep(60);
            libc::_exit(0);
        }
        child
    };
    say(&format!("child {child}"));
}

/// Descriptors and mappings of this process.
fn held() -> [usize; 2] {
    let fds = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    [
        fds,
        maps.lines().filter(|line| line.contains("memfd:ccl")).count(),
    ]
}

/// Microseconds of a clock that all processes share.
pub(crate) fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000
}

fn say(what: &str) {
    println!("\nsays: {what}");
}
