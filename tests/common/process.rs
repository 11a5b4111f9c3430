//! Ranks that are processes: the test's own program once more, in which a test named `roles` does what it is told.

use ccl::UniqueId;
use std::{
    env,
    io::{BufRead, BufReader, Read},
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
};

/// A process that is a rank and does as it is told; killed when dropped.
pub(crate) struct Rank {
    pub(crate) child: Child,
    says: BufReader<ChildStdout>,
}

impl Rank {
    /// Starts one in an environment with `settings`, too.
    pub(crate) fn start(
        id: &UniqueId,
        ranks: usize,
        rank: usize,
        settings: &[(&str, &str)],
        role: &str,
    ) -> Rank {
        let hex = hex(id);
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "roles", "--nocapture"])
            .env("CCL_TEST_ROLE", format!("{role} {hex} {ranks} {rank}"))
            .envs(settings.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(child.stdout.take().unwrap());
        Rank { child, says }
    }

    pub(crate) fn start_all(ranks: usize, settings: &[(&str, &str)], role: &str) -> Vec<Rank> {
        let id = UniqueId::new().unwrap();
        (0..ranks)
            .map(|rank| Rank::start(&id, ranks, rank, settings, role))
            .collect()
    }

    /// The next line that it says. Lines of the test harness are skipped.
    pub(crate) fn said(&mut self) -> String {
        let mut lines = self.says.by_ref().lines().map(Result::unwrap);
        let said = lines.find_map(|line| line.strip_prefix("says: ").map(str::to_owned));
        said.unwrap_or_else(|| panic!("it ended: {}", self.log()))
    }

    /// What it told on its standard error, once it has ended.
    pub(crate) fn log(&mut self) -> String {
        let mut log = String::new();
        let stderr: Option<ChildStderr> = self.child.stderr.take();
        stderr.map(|mut stderr| stderr.read_to_string(&mut log));
        log
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// In the process of a rank: its role, the id, the number of ranks and its own.
pub(crate) fn role() -> Option<(String, UniqueId, usize, usize)> {
    let role = env::var("CCL_TEST_ROLE").ok()?;
    let words: Vec<&str> = role.split(' ').collect();
    let [ranks, rank] = [2, 3].map(|k| words[k].parse().unwrap());
    Some((words[0].to_owned(), id_of(words[1]), ranks, rank))
}

/// An id as text.
pub(crate) fn hex(id: &UniqueId) -> String {
    id.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The id that [`hex`] made this text of.
pub(crate) fn id_of(hex: &str) -> UniqueId {
    let byte = |i: usize| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
    UniqueId::from_bytes(std::array::from_fn(byte)).unwrap()
}

/// Tells the test.
pub(crate) fn say(what: impl std::fmt::Display) {
    println!("\nsays: {what}");
}

/// Kills one of three ranks that say "begun" and go on in `role` until a call fails, again and again: the others say that it was
/// lost.
pub(crate) fn is_lost_when_killed(role: &str) {
    for _ in 0..10 {
        let mut ranks = Rank::start_all(3, &[], role);
        assert!(ranks.iter_mut().all(|rank| rank.said() == "begun"));
        let pid = ranks[1].child.id();
        ranks[1].child.kill().unwrap();
        for survivor in [0, 2] {
            let said = ranks[survivor].said();
            let lost = format!("rank 1 was lost (its process {pid} ended)");
            assert!(said.contains(&lost), "{said}");
        }
    }
}
