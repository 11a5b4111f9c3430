//! [`Meeting`]: the gathering of a communicator's ranks, without sockets and without a clock of its own.

use super::{
    MAX_TIMEOUT,
    messages::{Answer, Join},
    seat::{Host, Seat, Table},
};
use crate::{
    net::{VERSION, Way},
    topo::share::{Allowance, Crowd, Share, share},
    types::MAX_RANKS,
};
use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    time::{Duration, Instant},
};

/// Who has come so far. Each step may end the meeting with an answer to everybody who came.
#[derive(Debug)]
pub(super) struct Meeting {
    come: BTreeMap<u32, Join>,
    /// The rank that came first: the others are compared with it.
    first: u32,
    /// The earliest deadline of those who came, and how long that rank was willing to wait.
    deadline: Option<(Instant, Duration)>,
    /// Whether all came from this host.
    all_local: bool,
    /// The address of this host at which a rank of another one reached the meeting place.
    reached_at: Option<IpAddr>,
    /// Who has said that it will not come, and why.
    fails: Option<u32>,
    /// The last who came without the secret, or in another version of the protocol: what there is to say of it.
    turned_away: Option<String>,
}

impl Default for Meeting {
    fn default() -> Self {
        Meeting {
            come: BTreeMap::new(),
            first: 0,
            deadline: None,
            all_local: true,
            reached_at: None,
            fails: None,
            turned_away: None,
        }
    }
}

impl Meeting {
    /// When [`Meeting::expire`] is to be called.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline.map(|(at, _)| at)
    }

    /// Who has come, or has said that it will not, and why.
    pub(super) fn ranks(&self) -> impl Iterator<Item = u32> {
        self.come.keys().copied().chain(self.fails)
    }

    /// `rank` has said so.
    pub(super) fn fail(&mut self, rank: u32) {
        self.fails = Some(rank);
    }

    /// `rank` comes; `here` is this host's address on its connection, if it came from another host.
    pub(super) fn arrive(
        &mut self,
        rank: u32,
        join: Join,
        here: Option<IpAddr>,
        now: Instant,
    ) -> Option<Answer> {
        if self.come.is_empty() {
            self.first = rank;
        }
        let (first, ranks) = (self.first, join.ranks);
        let deadline = now + join.left.min(MAX_TIMEOUT);
        if self.deadline.is_none_or(|(at, _)| deadline < at) {
            self.deadline = Some((deadline, join.timeout));
        }
        if rank >= ranks || ranks as usize > MAX_RANKS {
            return Some(refused(format!("there is no rank {rank} among {ranks} ranks")));
        }
        if let Some(other) = self.come.get(&rank) {
            let (a, b) = (self.process(other, &join), self.process(&join, other));
            return Some(refused(format!("rank {rank} came twice: from {a} and from {b}")));
        }
        if let Some(what) = self
            .come
            .get(&first)
            .and_then(|one| difference((first, one), (rank, &join)))
        {
            return Some(refused(what));
        }
        self.come.insert(rank, join);
        self.all_local &= here.is_none();
        self.reached_at = self.reached_at.or(here);
        (self.come.len() == ranks as usize).then(|| self.table())
    }

    /// Somebody at `from` said to be `rank` and did not hold the secret.
    pub(super) fn deny(&mut self, rank: u32, from: Option<IpAddr>) {
        let place = place_of(from);
        self.turned_away = Some(format!(
            "one that said to be rank {rank}, on {place}, did not hold the secret"
        ));
    }

    /// Somebody at `from` speaks another version of the protocol. It may have meant another meeting.
    pub(super) fn misunderstand(&mut self, version: u32, from: Option<IpAddr>) {
        let place = place_of(from);
        self.turned_away = Some(format!(
            "one on {place} speaks version {version} of the protocol, this process version {VERSION}: use the same version of \
             ccl on all hosts"
        ));
    }

    /// The connection to `rank` has ended.
    pub(super) fn depart(&mut self, rank: u32) -> Option<Answer> {
        let join = self.come.get(&rank)?;
        let first = self.come.get(&self.first)?;
        Some(refused(format!(
            "rank {rank} ({}) ended before all ranks had joined",
            self.process(join, first)
        )))
    }

    /// A rank's process, and its host if it matters: where `other`, or anybody who came, is on another one.
    fn process(&self, join: &Join, other: &Join) -> String {
        let mut others = self.come.values().chain([other]);
        match others.all(|other| other.host.is(&join.host)) {
            true => format!("process {}", join.seat.pid),
            false => format!("process {} on {}", join.seat.pid, join.host),
        }
    }

    /// The deadline has passed; `closed` is why the process where the ranks meet lets nobody in, if that is so.
    pub(super) fn expire(&self, closed: Option<&str>) -> Option<Answer> {
        let (_, waited) = self.deadline?;
        let ranks = self.come.values().next()?.ranks;
        let missing: Vec<u32> = (0..ranks).filter(|r| !self.come.contains_key(r)).collect();
        let turned_away = self.turned_away.as_ref();
        let turned_away = turned_away.map_or(String::new(), |what| format!("; {what}"));
        let closed = closed.map_or(String::new(), |why| {
            format!("; or came in vain to the process where the ranks meet: {why}")
        });
        Some(Answer::Refused {
            late: true,
            what: format!(
                "init timed out after {:.1} s: {} of {ranks} ranks never came: {}{closed}{turned_away}",
                waited.as_secs_f64(),
                missing.len(),
                list(&missing)
            ),
        })
    }

    fn table(&self) -> Answer {
        let seats: Vec<Seat> = self.come.values().map(|join| join.seat.clone()).collect();
        let (mut hosts, mut on): (Vec<Host>, Vec<u16>) = (Vec::new(), Vec::new());
        let mut known = HashMap::new();
        for join in self.come.values() {
            let mut host = join.host.clone();
            // Ranks of this host may know no address of theirs that others could use.
            if host.ways.is_empty() {
                host.ways.extend(self.reached_at.and_then(Way::seen));
            }
            // At most as many as ranks, which fit.
            let next = hosts.len() as u16;
            let at = *known.entry(host).or_insert_with_key(|host| {
                hosts.push(host.clone());
                next
            });
            on.push(at);
        }
        let Share {
            cores,
            crowds,
            starts,
        } = self.share();
        let nodes: Option<Vec<u16>> = self.come.values().map(|join| join.allowance.node).collect();
        Answer::Table(Table {
            seats,
            on,
            hosts,
            cores: u32::try_from(cores).unwrap_or(u32::MAX),
            crowds,
            starts,
            nodes: nodes.filter(|_| self.all_local).unwrap_or_default(),
            told: self.come.get(&0).map_or_else(Vec::new, |join| join.told.clone()),
            one_host: self.all_local,
            without_wire: self
                .come
                .iter()
                .find(|(_, join)| !join.has_wire)
                .map(|(&rank, _)| rank),
        })
    }

    /// How the ranks share their machines; the cores for all are those that there would be, were each machine as short of them as the
    /// one that has the fewest for each of its own.
    fn share(&self) -> Share {
        let mut machines: BTreeMap<_, (Vec<usize>, Vec<&Allowance>)> = BTreeMap::new();
        for (i, join) in self.come.values().enumerate() {
            // A kernel that does not tell which it is may be any other one.
            let unknown = (join.host.boot == [0; 16]).then(|| join.host.key());
            let (ranks, allowances) = machines.entry((join.host.boot, unknown)).or_default();
            ranks.push(i);
            allowances.push(&join.allowance);
        }
        let (mut crowds, mut starts) = (vec![Crowd::Alone; self.come.len()], vec![None; self.come.len()]);
        let cores = machines.values().map(|(ranks, allowances)| {
            let share = share(allowances);
            for (i, &rank) in ranks.iter().enumerate() {
                (crowds[rank], starts[rank]) = (share.crowds[i], share.starts[i]);
            }
            self.come.len() * share.cores / ranks.len()
        });
        let cores = cores.min().unwrap_or(1).max(1);
        Share {
            cores,
            crowds,
            starts,
        }
    }
}

/// Where a stranger is, for messages.
fn place_of(from: Option<IpAddr>) -> String {
    from.map_or_else(|| "this host".to_owned(), |ip| ip.to_string())
}

fn refused(what: String) -> Answer {
    Answer::Refused { late: false, what }
}

/// In what two ranks differ that must be the same.
fn difference((a, one): (u32, &Join), (b, other): (u32, &Join)) -> Option<String> {
    let [a, b] = match one.host.is(&other.host) {
        true => [a.to_string(), b.to_string()],
        false => [format!("{a} on {}", one.host), format!("{b} on {}", other.host)],
    };
    if one.ranks != other.ranks {
        return Some(format!(
            "the ranks disagree on their number: rank {a} was told {}, rank {b} was told {}",
            one.ranks, other.ranks
        ));
    }
    if one.version != other.version {
        return Some(format!(
            "the ranks use different versions of ccl: rank {a} has {}, rank {b} has {}",
            one.version, other.version
        ));
    }
    let value = |join: &Join, name: &str| {
        let found = join.knobs.iter().find(|(n, _)| n == name);
        found.map_or_else(|| "not set".to_owned(), |(_, v)| format!("{v:?}"))
    };
    one.knobs.iter().chain(&other.knobs).find_map(|(name, _)| {
        let (ours, theirs) = (value(one, name), value(other, name));
        (ours != theirs).then(|| {
            format!(
                "the ranks' settings differ: {name} is {ours} on rank {a} and {theirs} on rank {b}: give \
                 all ranks the same"
            )
        })
    })
}

/// Rank numbers for a message, not all of them if there are very many.
fn list(ranks: &[u32]) -> String {
    let shown: Vec<String> = ranks.iter().take(32).map(u32::to_string).collect();
    let more = if ranks.len() > 32 { ", ..." } else { "" };
    shown.join(", ") + more
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::seat::Life, *};
    use crate::net::Address;

    pub(in crate::bootstrap) fn join(ranks: u32, pid: u32) -> Join {
        Join {
            ranks,
            version: "1".into(),
            knobs: vec![("CCL_ALGO".into(), "ring".into())],
            has_wire: pid != 5,
            seat: Seat {
                unix: Address::Unix([pid as u8; 16]),
                port: Some(pid as u16),
                pid,
                pid_namespace: 1,
                life: Life::draw().unwrap(),
            },
            host: host(1, None),
            allowance: Allowance {
                cpus: vec![pid as u8],
                quotas: Vec::new(),
                node: Some(pid as u16 % 2),
            },
            told: vec![pid as u8],
            timeout: Duration::from_secs(30),
            left: Duration::from_secs(30),
        }
    }

    fn host(boot: u8, ip: Option<[u8; 4]>) -> Host {
        Host {
            name: "node".into(),
            boot: [boot; 16],
            network: 1,
            ways: ip.map(|ip| Way::plain(IpAddr::from(ip))).into_iter().collect(),
        }
    }

    fn what(answer: Option<Answer>) -> String {
        match answer {
            Some(Answer::Refused { what, .. }) => what,
            other => panic!("not a refusal: {other:?}"),
        }
    }

    /// Of machines that do not say which they are there may be several.
    #[test]
    fn processes_are_those_of_a_known_machine_and_pid_namespace() {
        for (boot, namespace, wanted) in [(1, 1, Some(7)), (1, 2, None), (0, 1, None)] {
            let (mut meeting, now) = (Meeting::default(), Instant::now());
            let join = Join {
                host: host(boot, None),
                ..join(1, 7)
            };
            let Some(Answer::Table(table)) = meeting.arrive(0, join, None, now) else {
                panic!("no table")
            };
            assert_eq!(table.processes_of((namespace, [boot; 16]))(0), wanted);
        }
    }

    #[test]
    fn a_table_when_all_have_come() {
        let (mut meeting, now) = (Meeting::default(), Instant::now());
        assert!(meeting.arrive(2, join(3, 1), None, now).is_none());
        assert!(meeting.arrive(0, join(3, 2), None, now).is_none());
        match meeting.arrive(1, join(3, 5), None, now) {
            Some(Answer::Table(table)) => {
                assert_eq!(table.seats.iter().map(|s| s.pid).collect::<Vec<_>>(), [2, 5, 1]);
                assert!(table.cores == 3 && table.one_host); // processors 0, 1 and 2
                assert_eq!(table.without_wire, Some(1));
                assert_eq!(table.crowds, [Crowd::Alone; 3]);
                assert_eq!(table.nodes, [0, 1, 1]);
                assert_eq!(table.told, [2]); // rank 0's, whoever came first
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_machine_counts_its_own_processors_and_has_an_address_for_others() {
        let (mut meeting, now) = (Meeting::default(), Instant::now());
        let other = |pid, ip: [u8; 4]| Join {
            host: host(2, Some(ip)),
            ..join(3, pid)
        };
        assert!(meeting.arrive(0, join(3, 1), None, now).is_none());
        let here = Some(IpAddr::from([10, 0, 0, 1]));
        assert!(meeting.arrive(1, other(1, [10, 0, 0, 2]), here, now).is_none());
        match meeting.arrive(2, other(1, [10, 0, 0, 2]), here, now) {
            Some(Answer::Table(table)) => {
                // Two ranks share processor 0 of the second machine.
                assert!(table.cores == 1 && !table.one_host);
                assert_eq!(table.crowds, [Crowd::Alone, Crowd::Processor, Crowd::Processor]);
                assert_eq!(table.starts, [None, Some(0), Some(0)]);
                assert_eq!(table.on, [0, 1, 1]);
                let ips: Vec<_> = table
                    .hosts
                    .iter()
                    .map(|host| host.ways[0].ip().to_string())
                    .collect();
                assert_eq!(ips, ["10.0.0.1", "10.0.0.2"]);
                assert!(table.fits(3) && !table.fits(2));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn refusals_name_the_ranks() {
        let now = Instant::now();
        let after = |rank, second: Join| {
            let mut meeting = Meeting::default();
            assert!(meeting.arrive(1, join(4, 10), None, now).is_none());
            what(meeting.arrive(rank, second, None, now))
        };
        assert_eq!(
            after(1, join(4, 11)),
            "rank 1 came twice: from process 10 and from process 11"
        );
        assert_eq!(after(4, join(4, 11)), "there is no rank 4 among 4 ranks");
        assert!(after(0, join(5, 11)).ends_with("rank 1 was told 4, rank 0 was told 5"));
        let newer = Join {
            version: "2".into(),
            ..join(4, 11)
        };
        assert!(after(0, newer).ends_with("rank 1 has 1, rank 0 has 2"));
        let tree = Join {
            knobs: vec![("CCL_ALGO".into(), "tree".into())],
            ..join(4, 11)
        };
        assert!(after(3, tree).contains("CCL_ALGO is \"ring\" on rank 1 and \"tree\" on rank 3"));
        let unset = Join {
            knobs: vec![],
            ..join(4, 11)
        };
        assert!(after(3, unset).contains("CCL_ALGO is \"ring\" on rank 1 and not set on rank 3"));
    }

    #[test]
    fn hosts_are_named_where_there_are_several() {
        let (mut meeting, now) = (Meeting::default(), Instant::now());
        let far = |knobs| Join {
            host: host(2, Some([10, 0, 0, 2])),
            knobs,
            ..join(4, 11)
        };
        assert!(meeting.arrive(1, join(4, 10), None, now).is_none());
        assert_eq!(
            what(meeting.arrive(3, far(vec![]), None, now)),
            "the ranks' settings differ: CCL_ALGO is \"ring\" on rank 1 on node and not set on rank 3 on node (10.0.0.2): give all ranks the same"
        );
        assert!(meeting.arrive(3, far(join(4, 0).knobs), None, now).is_none());
        assert!(what(meeting.depart(3)).starts_with("rank 3 (process 11 on node (10.0.0.2)) ended"));
    }

    #[test]
    fn a_table_of_the_most_ranks_fits_into_a_message() {
        let way = |i: u8| Way {
            interface: i,
            speed: Some(400_000),
            ..Way::plain([0xfd00, 0, 0, i.into(), 1, 2, 3, 4].into())
        };
        let mut meeting = Meeting::default();
        let ranks = MAX_RANKS as u32;
        for rank in 0..ranks {
            let name = format!("a-host-with-quite-a-long-name-{rank:09}");
            let ways = (0..Way::MOST as u8).map(way).collect();
            let host = Host {
                name,
                ways,
                ..host(3, None)
            };
            let join = Join {
                host,
                ..join(ranks, rank)
            };
            meeting.come.insert(rank, join);
        }
        assert!(crate::net::Packed::message(&meeting.table()).is_ok());
    }

    #[test]
    fn the_end_of_one_and_the_deadline_end_it_for_all() {
        let (mut meeting, now) = (Meeting::default(), Instant::now());
        assert_eq!(meeting.deadline(), None);
        meeting.arrive(0, join(4, 10), None, now);
        let hasty = Join {
            timeout: Duration::from_millis(1500),
            left: Duration::from_millis(1500),
            ..join(4, 11)
        };
        meeting.arrive(2, hasty, None, now);
        assert_eq!(meeting.deadline(), Some(now + Duration::from_millis(1500)));
        assert_eq!(
            what(meeting.expire(None)),
            "init timed out after 1.5 s: 2 of 4 ranks never came: 1, 3"
        );
        assert!(
            what(meeting.expire(Some("no room")))
                .ends_with("came: 1, 3; or came in vain to the process where the ranks meet: no room")
        );
        meeting.deny(1, Some(IpAddr::from([10, 0, 0, 7])));
        assert!(
            what(meeting.expire(None))
                .ends_with("; one that said to be rank 1, on 10.0.0.7, did not hold the secret")
        );
        meeting.misunderstand(3, None);
        assert!(
            what(meeting.expire(None))
                .contains("; one on this host speaks version 3 of the protocol, this process version")
        );
        assert!(what(meeting.depart(2)).starts_with("rank 2 (process 11) ended before"));
        assert!(meeting.depart(3).is_none());
    }
}
