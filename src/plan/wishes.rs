//! [`Wishes`]: which algorithms a user wants, of all operations or of some.

use super::algo::{ALGORITHMS, Algorithm, fitting};
use crate::types::{Collective, Error};
use std::str::FromStr;

/// What is wished for each operation, by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// For all operations that are not named.
    all: Wish,
    named: Vec<(String, Wish)>,
}

/// What is wished for one operation. Algorithms are numbered as in [`ALGORITHMS`], a bit for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Only these; 0: all.
    only: u32,
    /// Not these.
    not: u32,
}

impl Wishes {
    /// What is wished for a collective. Those that name nothing that can carry it out are as good as none.
    pub(crate) fn of(&self, collective: Collective) -> Wish {
        let named = |name: &str| self.named.iter().find(|(known, _)| known == name);
        let named = named(collective.name()).or_else(|| named(collective.plain().name()));
        let wish = named.map_or(self.all, |(_, wish)| *wish);
        let fits = fitting(collective).any(|algorithm| wish.allows(algorithm));
        if fits { wish } else { Wish::ANY }
    }
}

impl Wish {
    pub(crate) const ANY: Wish = Wish { only: 0, not: 0 };

    /// Whether an algorithm may be chosen.
    pub(crate) fn allows(self, algorithm: &Algorithm) -> bool {
        (self.only == 0 || self.names(algorithm)) && self.not & bit(algorithm) == 0
    }

    /// Whether it is one of those that are wished.
    pub(crate) fn names(self, algorithm: &Algorithm) -> bool {
        self.only & bit(algorithm) != 0
    }
}

fn bit(algorithm: &Algorithm) -> u32 {
    1 << algorithm.number()
}

const _: () = assert!(ALGORITHMS.len() <= 32);

impl FromStr for Wishes {
    type Err = Error;

    /// Reads `ring`, `ring,tree`, `^ring`, and with the names of operations in front `allreduce:ring;broadcast:tree,chain`. Case,
    /// blanks, and - and _ in operations' names do not matter.
    fn from_str(text: &str) -> Result<Self, Error> {
        let mut wishes = Wishes::default();
        let mut has_all = false;
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (operations, names) = match part.split_once(':') {
                Some((operations, names)) => (Some(operations), names),
                None => (None, part),
            };
            let wish = wish(names)?;
            match operations {
                None if !std::mem::replace(&mut has_all, true) => wishes.all = wish,
                None => {
                    return Err(Error::usage(format!(
                        "algorithm {text:?} says twice what holds for all operations"
                    )));
                }
                Some(operations) => {
                    for name in operations.split(',') {
                        let name = operation(name)?;
                        if wishes.named.iter().any(|(known, _)| *known == name) {
                            return Err(Error::usage(format!(
                                "algorithm {text:?} says twice what holds for {name}"
                            )));
                        }
                        wishes.named.push((name, wish));
                    }
                }
            }
        }
        Ok(wishes)
    }
}

/// Names behind each other, or behind a ^ those that are not wanted.
fn wish(names: &str) -> Result<Wish, Error> {
    let names = names.trim();
    let (names, is_not) = match names.strip_prefix('^') {
        Some(names) => (names, true),
        None => (names, false),
    };
    let mut bits = 0;
    for name in names.split(',').map(str::trim) {
        let mut all = ALGORITHMS.iter();
        let Some(algorithm) = all.find(|algorithm| algorithm.name.eq_ignore_ascii_case(name)) else {
            let names: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
            return Err(Error::usage(format!(
                "algorithm {name:?} does not exist: use one of {}",
                names.join(", ")
            )));
        };
        bits |= bit(algorithm);
    }
    Ok(match is_not {
        true => Wish { only: 0, not: bits },
        false => Wish { only: bits, not: 0 },
    })
}

fn operation(text: &str) -> Result<String, Error> {
    let name: String = (text.trim().chars())
        .filter(|c| !matches!(c, '-' | '_'))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    let all = super::definition::every([0]);
    let names: Vec<&str> = all.iter().map(|collective| collective.name()).collect();
    if names.contains(&name.as_str()) {
        return Ok(name);
    }
    Err(Error::usage(format!(
        "operation {:?}, for which an algorithm is wished, does not exist: use one of {}",
        text.trim(),
        names.join(", ")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::definition;

    fn allowed(text: &str, collective: Collective) -> String {
        let wish = text.parse::<Wishes>().unwrap().of(collective);
        let names = fitting(collective).filter(|algorithm| wish.allows(algorithm));
        names
            .map(|algorithm| algorithm.name)
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn wishes_hold_for_the_operations_that_they_name() {
        let broadcast = Collective::Broadcast { root: 1 };
        for (text, reduce, cast) in [
            (
                "Ring",
                "ring",
                "direct tree knomial chain doubletree hierarchical",
            ),
            (" ring , TREE ;", "ring", "tree"),
            ("all_reduce:ring; BROADCAST:tree,chain", "ring", "tree chain"),
            ("allreduce,broadcast:doubletree", "doubletree", "doubletree"),
            ("chain;allreduce:ring,doubling", "doubling ring", "chain"),
            (
                "^doubling,oneshot,direct;broadcast:^direct,hierarchical",
                "ring halving doubletree hierarchical",
                "tree knomial chain doubletree",
            ),
        ] {
            assert_eq!(allowed(text, Collective::AllReduce), reduce, "{text}");
            assert_eq!(allowed(text, broadcast), cast, "{text}");
        }
        // What nothing can carry out is not wished; the V forms are as the others, unless they are named.
        assert_eq!(
            allowed("allgatherv:bruck;allgather:ring", Collective::AllGather),
            "ring"
        );
        for collective in definition::every([0]) {
            assert_ne!(allowed("ring", collective), "", "{collective:?}");
            assert_eq!(allowed("", collective), allowed(";", collective));
        }
    }

    #[test]
    fn mistakes_say_what_there_is() {
        let told = |text: &str| text.parse::<Wishes>().unwrap_err().to_string();
        assert!(told("rings").contains("algorithm \"rings\" does not exist: use one of doubling, oneshot"));
        assert!(told("allreduce:").contains("algorithm \"\" does not exist"));
        assert!(told("^").contains("algorithm \"\" does not exist"));
        assert!(
            told("sum:ring")
                .contains("operation \"sum\", for which an algorithm is wished, does not exist: use one of ")
        );
        assert!(told("ring;tree").contains("says twice what holds for all operations"));
        assert!(told("allreduce:ring;all-reduce:tree").contains("says twice what holds for allreduce"));
    }
}
