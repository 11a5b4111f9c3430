//! Which algorithms a program, or who runs it, asks for.

use super::{
    algo::{ALGORITHMS, Algorithm, fitting, has_no_order},
    definition,
};
use crate::types::Collective;

/// By operation, the algorithms among which a call's is chosen. The default asks for none.
///
/// Written as `ring` (every operation that it fits), `allreduce:ring;broadcast:tree,chain` (these, among which the planner
/// chooses) or `^ring` (all others). What is said of an operation comes before what is said of all, and must fit it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Forced {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Rule {
    /// The operation's name; none: all that have no rule of their own.
    operation: Option<&'static str>,
    listed: Set,
    /// Whether those that are listed are the ones that are not to be used.
    excludes: bool,
}

/// Some of [`ALGORITHMS`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Set(u32);

const _: () = assert!(ALGORITHMS.len() <= 32);

impl Set {
    pub(crate) fn has(self, algorithm: &Algorithm) -> bool {
        self.0 & Set::of(algorithm).0 != 0
    }

    fn of(algorithm: &Algorithm) -> Set {
        Set(1u32.checked_shl(algorithm.number().into()).unwrap_or(0))
    }

    fn members(self) -> impl Iterator<Item = &'static Algorithm> {
        ALGORITHMS.iter().filter(move |algorithm| self.has(algorithm))
    }
}

impl Forced {
    /// Reads what is written.
    ///
    /// # Errors
    /// What is wrong, with the names that there are.
    pub(crate) fn parse(text: &str) -> Result<Forced, String> {
        let mut rules: Vec<Rule> = Vec::new();
        for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
            let (operation, list) = match part.split_once(':') {
                Some((name, list)) => (Some(operation(name.trim())?), list.trim()),
                None => (None, part),
            };
            let (name, concerns) = (operation.map(Collective::name), operation.map(all_for));
            let (excludes, list) = match list.strip_prefix('^') {
                Some(list) => (true, list),
                None => (false, list),
            };
            if rules.iter().any(|rule| rule.operation == name) {
                let whose = name.unwrap_or("all operations");
                return Err(format!(
                    "{text:?} lists algorithms for {whose} twice: put a comma between them"
                ));
            }
            let mut listed = Set::default();
            for one in list.split(',') {
                let one = algorithm(one.trim())?;
                let unfit = concerns.filter(|all| !excludes && !all.has(one));
                if let (Some(name), Some(all)) = (name, unfit) {
                    let able = all.members().map(|one| one.name).collect::<Vec<_>>().join(", ");
                    return Err(format!("{:?} does no {name}: use one of {able}", one.name));
                }
                listed.0 |= Set::of(one).0;
            }
            let is_left = |all: Set| !excludes || all.0 & !listed.0 != 0;
            if let Some(name) = name.filter(|_| !concerns.is_none_or(is_left)) {
                return Err(format!("{part:?} leaves no algorithm for {name}"));
            }
            rules.push(Rule {
                operation: name,
                listed,
                excludes,
            });
        }
        Ok(Forced { rules })
    }

    /// The algorithms that are asked for in `collective`; none where all will do, and where none of them fits it.
    pub(crate) fn among(&self, collective: Collective) -> Option<Set> {
        let name = collective.name();
        let own = self.rules.iter().find(|rule| rule.operation == Some(name));
        let rule = own.or_else(|| self.rules.iter().find(|rule| rule.operation.is_none()))?;
        let all = all_for(collective);
        let left = match rule.excludes {
            true => Set(all.0 & !rule.listed.0),
            false => Set(all.0 & rule.listed.0),
        };
        (left != Set::default() && left != all).then_some(left)
    }

    /// The algorithms of a reduction that is to use no others, if they all combine in orders of their own.
    pub(crate) fn out_of_order(&self) -> Option<String> {
        let reduces = |name| matches!(name, "allreduce" | "reduce" | "reducescatter" | "reducescatterv");
        let concerned = |rule: &&Rule| !rule.excludes && rule.operation.is_none_or(reduces);
        let mut rules = self.rules.iter().filter(concerned);
        let rule = rules.find(|rule| rule.listed.members().all(has_no_order))?;
        Some(names(rule.listed))
    }
}

/// The names of some algorithms, for messages.
pub(crate) fn names(set: Set) -> String {
    let names: Vec<&str> = set.members().map(|algorithm| algorithm.name).collect();
    names.join(" or ")
}

/// All that can carry it out.
fn all_for(collective: Collective) -> Set {
    fitting(collective).fold(Set::default(), |all, one| Set(all.0 | Set::of(one).0))
}

fn operation(name: &str) -> Result<Collective, String> {
    let all = || definition::every([0]).into_iter();
    let found = all().find(|known| known.name().eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names: Vec<&str> = all().map(Collective::name).collect();
        format!(
            "operation {name:?} does not exist: use one of {}",
            names.join(", ")
        )
    })
}

fn algorithm(name: &str) -> Result<&'static Algorithm, String> {
    let mut all = ALGORITHMS.iter();
    let found = all.find(|algorithm| algorithm.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| {
        let names: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
        format!(
            "algorithm {name:?} does not exist: use one of {}",
            names.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROADCAST: Collective = Collective::Broadcast { root: 0 };

    fn asked(text: &str, collective: Collective) -> Option<String> {
        Forced::parse(text).unwrap().among(collective).map(names)
    }

    #[test]
    fn an_operation_s_own_list_comes_first() {
        let asked = |text, collective| asked(text, collective).unwrap_or_default();
        assert_eq!(asked("ring", Collective::AllReduce), "ring");
        assert_eq!(asked("ring", BROADCAST), ""); // does not fit: as if nothing were said
        let both = " allreduce:ring; Broadcast : tree,CHAIN ;";
        assert_eq!(asked(both, Collective::AllReduce), "ring");
        assert_eq!(asked(both, BROADCAST), "tree or chain");
        assert_eq!(asked(both, Collective::Reduce { root: 0 }), "");
        assert_eq!(asked("chain;broadcast:tree", BROADCAST), "tree");
        assert_eq!(asked("", Collective::AllReduce), "");
    }

    #[test]
    fn what_is_excluded_is_not_among_them() {
        let left = asked("^ring,direct", Collective::AllGather).unwrap();
        assert!(!left.contains("ring") && !left.contains("direct") && left.contains("bruck"));
        assert_eq!(asked("^ring", BROADCAST), None);
        let every: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
        assert_eq!(asked(&format!("^{}", every.join(",")), BROADCAST), None);
    }

    #[test]
    fn what_does_not_exist_is_told_with_what_does() {
        let error = |text| Forced::parse(text).unwrap_err();
        assert!(
            error("allreduce:rings").starts_with("algorithm \"rings\" does not exist: use one of doubling, ")
        );
        assert!(
            error("allreduces:ring")
                .starts_with("operation \"allreduces\" does not exist: use one of allreduce, ")
        );
        assert!(error("ring,").contains("algorithm \"\""));
        let unfit = error("direct;broadcast:tree,ring");
        assert!(unfit.starts_with("\"ring\" does no broadcast: use one of ") && unfit.contains("chain, "));
        assert!(!unfit.contains(", ring"));
        let every: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.name).collect();
        let none = format!("broadcast:^{}", every.join(","));
        assert_eq!(
            error(&none),
            format!("{none:?} leaves no algorithm for broadcast")
        );
        assert!(Forced::parse("broadcast:^ring").is_ok());
        assert!(error("ring;tree").contains("for all operations twice"));
        assert!(error("reduce:tree;reduce:chain").contains("for reduce twice"));
    }

    #[test]
    fn an_order_of_its_own_concerns_reductions() {
        let told = |text| Forced::parse(text).unwrap().out_of_order();
        assert_eq!(told("ring,chain"), Some("ring or chain".into()));
        assert_eq!(told("allreduce:halving"), Some("halving".into()));
        for fine in ["", "ring,direct", "^direct", "allgather:ring", "bruck"] {
            assert_eq!(told(fine), None, "{fine}");
        }
    }
}
