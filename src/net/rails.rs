//! Which ways to another host are used together, and which only if those are closed.

use super::{Way, interfaces::order_of};
use std::{cmp::Reverse, net::IpAddr};

/// A way from this host to another one, seen from both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rail {
    pub(crate) to: IpAddr,
    /// Our end, where several of our interfaces lead to that subnet: routing alone would send all by one of them.
    pub(crate) from: Option<IpAddr>,
    /// Megabits per second of the slower end, as far as that is known.
    pub(crate) speed: Option<u32>,
    interface: u8,
    tier: u8,
}

/// The ways to a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rails {
    /// Those to be used together.
    pub(crate) together: Vec<Rail>,
    /// All others, the best first: for want of those.
    pub(crate) else_one: Vec<Rail>,
}

impl Rails {
    /// The most that may be used together.
    pub(crate) const MOST: usize = 8;

    /// From a host with the ways `ours` to one with `theirs`, where `most` are used together, or as many as it takes: all of
    /// theirs that are as good as the best, [`AS_A_RULE`] at most.
    ///
    /// A way is as good as its worse end: ours in the same subnet, or the best by which routing may leave. One with both ends in
    /// one subnet is better than its equals. An address that is this host's own, too, leads back here, and is left out.
    pub(crate) fn new(ours: &[Way], theirs: &[Way], most: Option<usize>) -> Rails {
        let is_foreign = |way: &&Way| ours.iter().all(|own| own.ip() != way.ip());
        let mut ways: Vec<(bool, Rail)> = (theirs.iter().filter(is_foreign))
            .map(|way| rail(ours, way))
            .collect();
        ways.sort_by_key(|(is_shared, rail)| (rail.tier, Reverse(order_of(rail.speed)), !is_shared));
        let mut rails = Rails::default();
        let best = ways
            .first()
            .map(|(is_shared, rail)| (*is_shared, rail.tier, rail.speed));
        for (is_shared, mut rail) in ways {
            let is_another = rails.together.iter().all(|one| one.interface != rail.interface);
            let is_as_good = best == Some((is_shared, rail.tier, rail.speed));
            let fits = match most {
                Some(most) => best.is_some_and(|best| best.1 == rail.tier) && rails.together.len() < most,
                None => is_as_good && rails.together.len() < AS_A_RULE,
            };
            if is_another && fits {
                rail.from = source(ours, rail.to, rails.together.len());
                rails.together.push(rail);
            } else {
                rails.else_one.push(rail);
            }
        }
        rails
    }
}

/// The way to `way`, and whether both ends are in one subnet.
fn rail(ours: &[Way], way: &Way) -> (bool, Rail) {
    let best = |fits: &dyn Fn(&Way) -> bool| {
        let found = ours.iter().filter(|own| fits(own));
        found.min_by_key(|own| (own.tier, Reverse(order_of(own.speed))))
    };
    let near = best(&|own| own.net.contains(&way.ip()));
    let own = near.or_else(|| best(&|own| own.ip().is_ipv4() == way.ip().is_ipv4()));
    let rail = Rail {
        to: way.ip(),
        from: None,
        speed: own.map_or(way.speed, |own| own.speed.into_iter().chain(way.speed).min()),
        interface: way.interface,
        tier: own.map_or(u8::MAX, |own| own.tier.max(way.tier)),
    };
    (near.is_some(), rail)
}

/// The address of ours from which rail `number` leaves, if more than one could be meant.
fn source(ours: &[Way], to: IpAddr, number: usize) -> Option<IpAddr> {
    let near: Vec<&Way> = ours.iter().filter(|own| own.net.contains(&to)).collect();
    match near.len() {
        0 | 1 => None,
        several => Some(near[number % several].ip()),
    }
}

/// How many ways are used together, if nothing else is said.
const AS_A_RULE: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    /// Ways of a host: address with subnet, and megabits per second, 0 if unknown.
    fn ways(described: &[(&str, u32)]) -> Vec<Way> {
        let way = |(i, &(net, speed)): (usize, &(&str, u32))| Way {
            net: net.parse().unwrap(),
            interface: i as u8,
            tier: 0,
            speed: (speed > 0).then_some(speed),
            is_first: false,
        };
        described.iter().enumerate().map(way).collect()
    }

    fn tos(rails: &[Rail]) -> Vec<String> {
        rails.iter().map(|rail| rail.to.to_string()).collect()
    }

    fn between(ours: &[Way], theirs: &[Way], most: Option<usize>) -> [Vec<String>; 2] {
        let rails = Rails::new(ours, theirs, most);
        [tos(&rails.together), tos(&rails.else_one)]
    }

    #[test]
    fn equal_ways_are_used_together() {
        let a = ways(&[("10.0.0.1/24", 0), ("10.0.1.1/24", 0)]);
        let b = ways(&[("10.0.0.2/24", 0), ("10.0.1.2/24", 0)]);
        assert_eq!(between(&a, &b, None), [vec!["10.0.0.2", "10.0.1.2"], vec![]]);
        assert_eq!(between(&a, &b, Some(1)), [vec!["10.0.0.2"], vec!["10.0.1.2"]]);
        assert_eq!(between(&a, &b, Some(8))[0].len(), 2);
        let none_is_bound = |rail: &Rail| rail.from.is_none();
        assert!(Rails::new(&a, &b, None).together.iter().all(none_is_bound));
        let nets: Vec<String> = (0..8).map(|i| format!("10.0.{i}.2/24")).collect();
        let nets: Vec<(&str, u32)> = nets.iter().map(|net| (net.as_str(), 400_000)).collect();
        assert_eq!(between(&ways(&nets), &[], None)[0].len(), 0);
        let many = Rails::new(&ways(&[("10.0.0.1/8", 400_000)]), &ways(&nets), None);
        assert_eq!((many.together.len(), many.else_one.len()), (4, 4));
    }

    #[test]
    fn a_way_is_as_fast_as_its_slower_end() {
        let a = ways(&[("10.0.0.1/24", 100_000), ("10.0.1.1/24", 100_000)]);
        let b = ways(&[("10.0.0.2/24", 100_000), ("10.0.1.2/24", 10_000)]);
        assert_eq!(between(&a, &b, None), [vec!["10.0.0.2"], vec!["10.0.1.2"]]);
        assert_eq!(between(&b, &a, None), [vec!["10.0.0.1"], vec!["10.0.1.1"]]);
        assert_eq!(between(&a, &b, Some(2))[0], ["10.0.0.2", "10.0.1.2"]);
    }

    #[test]
    fn unequal_numbers_of_interfaces() {
        let a = ways(&[("10.0.0.1/24", 0), ("10.0.1.1/24", 0)]);
        let b = ways(&[("10.0.1.2/24", 0)]);
        assert_eq!(between(&a, &b, None), [vec!["10.0.1.2"], vec![]]);
        // From the one interface the other subnet is reached by routing, if at all.
        assert_eq!(between(&b, &a, None), [["10.0.1.1"], ["10.0.0.1"]]);
        let routed = ways(&[("10.0.2.2/24", 0)]);
        assert_eq!(between(&routed, &a, None), [vec!["10.0.0.1", "10.0.1.1"], vec![]]);
    }

    #[test]
    fn one_interface_is_one_way() {
        let mut b = ways(&[
            ("10.0.0.2/24", 0),
            ("10.0.1.2/24", 0),
            ("fd00::2/64", 0),
            ("fd01::2/64", 0),
        ]);
        (b[2].interface, b[3].interface) = (0, 1);
        let a = ways(&[
            ("10.0.0.1/24", 0),
            ("10.0.1.1/24", 0),
            ("fd00::1/64", 0),
            ("fd01::1/64", 0),
        ]);
        assert_eq!(
            between(&a, &b, None),
            [["10.0.0.2", "10.0.1.2"], ["fd00::2", "fd01::2"]]
        );
    }

    #[test]
    fn several_interfaces_in_one_subnet_each_send() {
        let a = ways(&[("10.0.0.1/16", 0), ("10.0.0.2/16", 0)]);
        let b = ways(&[("10.0.0.3/16", 0), ("10.0.0.4/16", 0), ("10.0.0.5/16", 0)]);
        let rails = Rails::new(&a, &b, None).together;
        let from: Vec<String> = rails
            .iter()
            .filter_map(|rail| Some(rail.from?.to_string()))
            .collect();
        assert_eq!(from, ["10.0.0.1", "10.0.0.2", "10.0.0.1"]);
    }

    #[test]
    fn what_leads_back_here_is_left_out_and_bridges_come_last() {
        let mut a = ways(&[("172.17.0.1/16", 0), ("172.18.0.1/16", 0), ("10.0.0.1/24", 0)]);
        let mut b = ways(&[("172.17.0.1/16", 0), ("172.18.0.9/16", 0), ("10.9.0.1/24", 0)]);
        for ways in [&mut a, &mut b] {
            (ways[0].tier, ways[1].tier) = (2, 2);
        }
        assert_eq!(between(&a, &b, None), [["10.9.0.1"], ["172.18.0.9"]]);
    }
}
