//! What ranks tell in their logs of the ways that messages and calls have gone.

use std::collections::BTreeMap;

/// What one rank has told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Of each communicator, in the order in which they ended.
    pub(crate) groups: Vec<(Messages, Calls)>,
    /// Why another rank's memory cannot be read, if that is so.
    pub(crate) refused: Option<String>,
}

/// Messages that were sent, by the ways of their bodies.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    pub(crate) inline: u64,
    pub(crate) copied: u64,
    pub(crate) read: u64,
    pub(crate) mapped: u64,
    pub(crate) taken: u64,
}

/// Calls, by their ways.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    pub(crate) short: u64,
    pub(crate) straight: u64,
    pub(crate) general: u64,
}

impl Messages {
    pub(crate) fn add(&mut self, more: &Messages) {
        self.inline += more.inline;
        self.copied += more.copied;
        self.read += more.read;
        self.mapped += more.mapped;
        self.taken += more.taken;
    }

    /// Those whose bodies did not lie in their entries.
    pub(crate) fn long(&self) -> u64 {
        self.copied + self.read + self.mapped + self.taken
    }
}

impl Calls {
    pub(crate) fn add(&mut self, more: &Calls) {
        self.short += more.short;
        self.straight += more.straight;
        self.general += more.general;
    }
}

impl Told {
    /// What the ranks of a process have told, by rank.
    pub(crate) fn read(log: &str) -> Vec<Told> {
        let (mut all, mut sent) = (BTreeMap::<&str, Told>::new(), BTreeMap::<&str, Messages>::new());
        for line in log.lines() {
            let Some((_, line)) = line.split_once(" rank ") else {
                continue;
            };
            let Some((rank, said)) = line.split_once(" DEBUG ") else {
                continue;
            };
            let told = all.entry(rank).or_default();
            if let Some((_, counts)) = said.split_once(" by shm: ") {
                let [inline, copied, read, mapped, taken] = numbers(counts);
                let more = Messages {
                    inline,
                    copied,
                    read,
                    mapped,
                    taken,
                };
                sent.entry(rank).or_default().add(&more);
            } else if let Some(counts) = said.strip_prefix("calls: ") {
                let [short, straight, general] = numbers(counts);
                let calls = Calls {
                    short,
                    straight,
                    general,
                };
                told.groups.push((sent.remove(rank).unwrap_or_default(), calls));
            } else if let Some((_, why)) =
                said.split_once("; long messages are copied twice: its memory cannot be read ")
            {
                told.refused = Some(why.to_owned());
            }
        }
        all.into_values().collect()
    }
}

/// The numbers with which the parts of `text` begin.
fn numbers<const N: usize>(text: &str) -> [u64; N] {
    let first = |part: &str| part.split(' ').next().and_then(|word| word.parse().ok());
    let all: Vec<u64> = text
        .split(", ")
        .flat_map(|part| part.split(" by "))
        .filter_map(first)
        .collect();
    all.try_into().unwrap_or_else(|all| panic!("{all:?} in {text:?}"))
}
