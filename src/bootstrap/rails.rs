//! The connections of a link by TCP: over several interfaces, those of them that work.

use super::{
    Membership,
    seat::{HostKey, Spot},
};
use crate::{
    net::{
        Address, Channel, Failure, LONGEST_SILENCE, Patience, Round, SILENCE, Target, Tried,
        interfaces::gigabits, tell_tried,
    },
    sys::tcp,
    types::Error,
};
use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};
use tracing::{info, warn};

/// What a rank knows of the ways to other hosts.
pub(super) struct Roads {
    /// How many are used together, if that is said.
    most: Option<usize>,
    /// Megabits per second of the fastest interface that this host has, used or not.
    fastest: Option<u32>,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Where nothing came back while other ways to the same host were open.
    closed: BTreeSet<IpAddr>,
    /// Hosts of which was told how they are reached.
    told: BTreeSet<HostKey>,
}

/// A connection, and where it leads.
type Met = (Spot, Channel);

impl Roads {
    pub(super) fn new(most: Option<usize>, fastest: Option<u32>) -> Roads {
        Roads {
            most,
            fastest,
            seen: Mutex::default(),
        }
    }

    /// Does something with what was seen. Nothing panics meanwhile.
    fn seen<T>(&self, act: impl FnOnce(&mut Seen) -> T) -> T {
        act(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Membership {
    /// Makes the connections of a link to `peer`: `wanted`, or one for each way that is used; where `fewer_do` at least one. All
    /// ways that are as good as the best are tried at once, and who does not answer soon is left out; if none does, all others are
    /// tried, for about half of `timeout`. Where the system says that there is no way, that is taken for an outage as long as one
    /// may last.
    pub(super) fn ride(
        &self,
        peer: usize,
        (wanted, fewer_do): (Option<usize>, bool),
        target: &Target,
        patience: &Patience<'_>,
        timeout: Duration,
    ) -> Result<Vec<Channel>, Failure> {
        if let Some(why) = self.nowhere(peer) {
            return Err(Failure::Nowhere(why));
        }
        // Before others, who wait for this rank, find it silent.
        let (began, mut longest) = (Instant::now(), SILENCE);
        let (end, no_way) = (
            began + timeout / 2,
            began + tcp::given_up_after().min(timeout / 2),
        );
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let silence = if left.is_zero() {
                LONGEST_SILENCE
            } else {
                left.min(longest)
            };
            let mut round = Round::default();
            let (together, else_one) = self.spots(peer, wanted);
            // Where somebody answers and says nothing that may be the peer, which is waited for to the end, or something else.
            let others = !else_one.is_empty() && Instant::now() < end;
            let (mut met, mut closed) = meet(&together, target, patience, (silence, others), &mut round)?;
            if met.is_empty() {
                let (others, more) = meet(&else_one, target, patience, (silence, others), &mut round)?;
                closed.extend(more);
                met.extend(others.into_iter().take(1));
            }
            if !met.is_empty() {
                self.tell_ways(peer, &met, closed);
                let (channels, missed) = more_of_them(met, (wanted, fewer_do), target, patience)?;
                if let (Some(missed), Some(wanted)) = (missed, wanted) {
                    self.tell_fewer(peer, (channels.len(), wanted), missed);
                    patience.forget_tried();
                }
                return Ok(channels);
            }
            match round.verdict() {
                why if why.may_pass() && (others || Instant::now() < end) => {
                    longest = LONGEST_SILENCE.min(2 * longest);
                }
                why if why.is_of_the_way() && Instant::now() < no_way => match (patience.stop)() {
                    true => return Err(Failure::Stopped),
                    false => thread::sleep(PAUSE),
                },
                why => return Err(why.into()),
            }
        }
    }

    /// The ways to try at once, and those for want of these: what was found closed comes last.
    fn spots(&self, peer: usize, wanted: Option<usize>) -> (Vec<Spot>, Vec<Spot>) {
        let (mut together, mut else_one) = self.ways(peer, self.roads.most);
        if let Some(wanted) = wanted.filter(|&wanted| wanted < together.len()) {
            else_one.splice(0..0, together.drain(wanted..));
        }
        self.roads.seen(|seen| {
            let is_open = |spot: &Spot| !ip(spot.address).is_some_and(|ip| seen.closed.contains(&ip));
            else_one.extend(together.extract_if(.., |spot| !is_open(spot)));
            else_one.sort_by_key(|spot| !is_open(spot)); // keeps their order otherwise
        });
        (together, else_one)
    }

    /// Tells which ways are used, once for each host, and of each that is closed.
    fn tell_ways(&self, peer: usize, met: &[Met], closed: Vec<Tried>) {
        let (rank, ranks, host) = (self.rank(), self.ranks(), self.host_of(peer));
        let (news, is_new): (Vec<_>, bool) = self.roads.seen(|seen| {
            let news = closed
                .into_iter()
                .filter(|(address, _)| ip(*address).is_some_and(|ip| seen.closed.insert(ip)));
            (
                news.collect(),
                self.key_of(peer).is_some_and(|key| seen.told.insert(key)),
            )
        });
        if !news.is_empty() {
            warn!(
                rank,
                ranks,
                "link: to {host}: left out, since other ways are open: {}",
                tell_tried(&news)
            );
        }
        if !is_new {
            return;
        }
        let speed = met.iter().filter_map(|(spot, _)| spot.speed).max();
        let way = |(spot, _): &Met| spot.to_string();
        let ways: Vec<String> = met.iter().map(way).collect();
        info!(rank, ranks, "link: to {host} by {}", ways.join(", "));
        if let (Some(speed), Some(fastest)) = (speed, self.roads.fastest)
            && speed < fastest / SLOW
        {
            warn!(
                rank,
                ranks,
                "link: to {host} at {} only, while this host has an interface of {}: see init's line about interfaces, and \
                 CCL_SOCKET_IFNAME",
                gigabits(speed),
                gigabits(fastest)
            );
        }
    }

    /// Tells that a link has fewer connections than are wanted, and why there are no more.
    fn tell_fewer(&self, peer: usize, (count, wanted): (usize, usize), missed: Tried) {
        let (rank, ranks, host) = (self.rank(), self.ranks(), self.host_of(peer));
        warn!(
            rank,
            ranks,
            "link: to {host}: {count} of {wanted} connections, as the next one did not come about: {}",
            tell_tried(&[missed])
        );
    }

    /// That there is no link to `peer`, between which hosts, and what was tried.
    pub(super) fn no_way(&self, peer: usize, why: &str, tried: &str) -> Error {
        let tried = match tried {
            "" => String::new(),
            tried => format!(
                "; tried {tried}. The hosts need a network in common and no firewall between their ports: see \
                 CCL_SOCKET_IFNAME, CCL_SOCKET_SUBNET and CCL_PORT_RANGE"
            ),
        };
        let (ours, theirs) = (self.host_of(self.rank()), self.host_of(peer));
        self.broken(format!(
            "no link from it on {ours} to rank {peer} on {theirs}: {why}{tried}"
        ))
    }
}

/// What came of connecting to all of `spots` at once: those that are there, and the ways that are closed. `others`: whether there are
/// others to try.
fn meet(
    spots: &[Spot],
    target: &Target,
    patience: &Patience<'_>,
    (silence, others): (Duration, bool),
    round: &mut Round,
) -> Result<(Vec<Met>, Vec<Tried>), Failure> {
    let ends: Vec<_> = spots.iter().map(|spot| (spot.address, spot.source)).collect();
    let outcomes = patience.dial_all(target, &ends, silence, others)?;
    let (mut met, mut closed) = (Vec::new(), Vec::new());
    for (spot, outcome) in spots.iter().zip(outcomes) {
        match outcome {
            Ok(channel) => met.push((*spot, channel)),
            Err(why) => {
                if why.is_of_the_way() {
                    closed.push((spot.address, why.to_string()));
                }
                round.failed(spot.address, why);
            }
        }
    }
    Ok((met, closed))
}

/// Makes as many connections as are wanted, over the same ways; or, where `fewer_do`, until one does not come about for a reason that
/// may pass, or that lies on its way, which is told beside those that are there.
fn more_of_them(
    met: Vec<Met>,
    (wanted, fewer_do): (Option<usize>, bool),
    target: &Target,
    patience: &Patience<'_>,
) -> Result<(Vec<Channel>, Option<Tried>), Failure> {
    let (spots, mut channels): (Vec<Spot>, Vec<Channel>) = met.into_iter().unzip();
    let count = wanted.unwrap_or(spots.len());
    for spot in spots.iter().cycle().take(count).skip(spots.len()) {
        let one = patience.dial_all(target, &[(spot.address, spot.source)], LONGEST_SILENCE, fewer_do)?;
        for outcome in one {
            match outcome {
                Ok(channel) => channels.push(channel),
                Err(why) if fewer_do && (why.may_pass() || why.is_of_the_way()) => {
                    return Ok((channels, Some((spot.address, why.to_string()))));
                }
                Err(why) => return Err(why.into()),
            }
        }
    }
    Ok((channels, None))
}

fn ip(address: Address) -> Option<IpAddr> {
    address.tcp().map(SocketAddr::ip)
}

/// How long to leave ways alone that are closed.
const PAUSE: Duration = Duration::from_millis(50);
/// How many times slower than the fastest interface the ways may be before that is told.
const SLOW: u32 = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{Connection, DialError, Protection, Role, Secret};

    /// The first connection is there; what becomes of the others, from `source` to where nobody listens.
    fn more(source: Option<&str>, fewer_do: bool) -> Result<(Vec<Channel>, Option<Tried>), Failure> {
        let target = Target {
            addresses: Vec::new(),
            role: Role::Stream,
            from: 0,
            to: 1,
            comm: [7; 16],
            secret: Secret::new(&[7; Secret::LEN]),
            protection: Protection::Off,
        };
        let port = tcp::listen(0).unwrap().1;
        let spot = Spot {
            address: Address::Tcp(([127, 0, 0, 1], port).into()),
            source: source.map(|ip| ip.parse().unwrap()),
            speed: None,
        };
        let (fd, _far) = tcp::pair();
        let met = vec![(spot, Channel::new(Connection { fd, guard: None }))];
        let stop = || false;
        let patience = Patience::new(Instant::now() + Duration::from_secs(60), &stop);
        more_of_them(met, (Some(3), fewer_do), &target, &patience)
    }

    #[test]
    fn a_link_does_with_fewer_connections_where_the_way_of_another_is_closed() {
        // No host has this address of a documentation's network.
        let elsewhere = Some("192.0.2.1");
        let (channels, missed) = more(elsewhere, true).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(channels.len(), 1);
        let (address, why) = missed.unwrap();
        assert!(
            address.is_tcp() && why.contains("assign requested address"),
            "{why}"
        );
        let failure = |source, fewer_do| more(source, fewer_do).err().unwrap();
        // The peer waits for all of which it was told, and of one that has gone others are not to be waited for.
        assert!(matches!(
            failure(elsewhere, false),
            Failure::Dial(DialError::Io(_))
        ));
        assert!(matches!(failure(None, true), Failure::Dial(DialError::Nobody)));
    }
}
