//! [`Selection`]: what a user says of the interfaces to use.

use super::{Interface, Way, list, ways};
use crate::types::Error;
use ipnet::IpNet;
use std::net::IpAddr;

/// Which interfaces and addresses may be used. Texts are as NCCL has them, where it has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    names: Option<Names>,
    subnets: Option<Subnets>,
    is_v6: Option<bool>,
    /// What was said, for messages.
    said: Vec<String>,
}

/// `eth,ib`: names that begin so; `=eth0,eth1`: these names; `^docker`, `^=docker0`: all but those.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Names {
    excludes: bool,
    is_exact: bool,
    names: Vec<String>,
}

/// `10.0.0.0/8,fd00::/8`: addresses in these subnets; `^172.16.0.0/12`: all but those.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Subnets {
    excludes: bool,
    nets: Vec<IpNet>,
}

impl Selection {
    /// What these settings say, each with the name by which it was set.
    ///
    /// # Errors
    /// [`Error::Usage`] for what is none.
    pub(crate) fn new(
        names: Option<(&str, &str)>,
        subnets: Option<(&str, &str)>,
        family: Option<(&str, &str)>,
    ) -> Result<Selection, Error> {
        let said = [names, subnets, family].into_iter().flatten();
        Ok(Selection {
            names: names.map(|(name, text)| Names::new(name, text)).transpose()?,
            subnets: subnets.map(|(name, text)| Subnets::new(name, text)).transpose()?,
            is_v6: family.map(|(name, text)| is_v6(name, text)).transpose()?,
            said: said.map(|(name, text)| format!("{name}={text:?}")).collect(),
        })
    }

    /// Whether anything was said.
    pub(crate) fn is_given(&self) -> bool {
        !self.said.is_empty()
    }

    /// Whether an address may be used.
    pub(super) fn takes(&self, interface: &Interface, net: &IpNet) -> bool {
        let ip = net.addr();
        self.takes_name(interface)
            && self.subnets.as_ref().is_none_or(|subnets| subnets.take(ip))
            && self.is_v6.is_none_or(|is_v6| is_v6 == ip.is_ipv6())
    }

    fn takes_name(&self, interface: &Interface) -> bool {
        self.names
            .as_ref()
            .is_none_or(|names| names.take(&interface.name))
    }

    /// The ways to this host that are left, `most` at most ([`ways`]).
    ///
    /// # Errors
    /// [`Error::Usage`], with what there is, if something was said and nothing is left. Loopback may be named, for ranks of
    /// one host, which need none.
    pub(crate) fn ways(&self, interfaces: &[Interface], most: usize) -> Result<Vec<Way>, Error> {
        let ways = ways(interfaces, self, most);
        let names_loopback = self
            .names
            .as_ref()
            .is_some_and(|names| !names.excludes && names.take("lo"));
        if ways.is_empty() && self.is_given() && !names_loopback {
            return Err(Error::usage(format!(
                "{} leaves no address by which other hosts could reach this one: there are {}",
                self.said.join(" and "),
                list(interfaces)
            )));
        }
        Ok(ways)
    }
}

impl Names {
    fn new(name: &str, text: &str) -> Result<Names, Error> {
        let (excludes, rest) = strip(text, '^');
        let (is_exact, rest) = strip(rest, '=');
        let names: Vec<String> = parts(rest).map(str::to_owned).collect();
        let is_wrong = |name: &String| name.starts_with(['^', '=']) || name.contains(char::is_whitespace);
        if names.is_empty() || names.iter().any(is_wrong) {
            return Err(Error::usage(format!(
                "{name}={text:?} names no interfaces: write the beginnings of their names, such as eth,ib; all of their \
                 names after one =, as in =eth0,eth1; or those that are not to be used after one ^, as in ^docker"
            )));
        }
        Ok(Names {
            excludes,
            is_exact,
            names,
        })
    }

    fn take(&self, name: &str) -> bool {
        let fits = |wanted: &String| match self.is_exact {
            true => name == wanted,
            false => name.starts_with(wanted.as_str()),
        };
        self.names.iter().any(fits) != self.excludes
    }
}

impl Subnets {
    fn new(name: &str, text: &str) -> Result<Subnets, Error> {
        let (excludes, rest) = strip(text, '^');
        let net = |text: &str| {
            let one: Option<IpNet> = text.parse::<IpAddr>().ok().map(IpNet::from);
            text.parse().ok().or(one)
        };
        let nets: Option<Vec<IpNet>> = parts(rest).map(net).collect();
        match nets.filter(|nets| !nets.is_empty()) {
            Some(nets) => Ok(Subnets { excludes, nets }),
            None => Err(Error::usage(format!(
                "{name}={text:?} is no list of subnets: write them as 10.0.0.0/8,fd00::/8, or those that are not to be used \
                 after one ^, as in ^172.16.0.0/12"
            ))),
        }
    }

    fn take(&self, ip: IpAddr) -> bool {
        self.nets.iter().any(|net| net.contains(&ip)) != self.excludes
    }
}

fn is_v6(name: &str, text: &str) -> Result<bool, Error> {
    match text.trim() {
        "AF_INET" => Ok(false),
        "AF_INET6" => Ok(true),
        _ => Err(Error::usage(format!(
            "{name}={text:?} is no version of IP: use AF_INET for version 4 or AF_INET6 for version 6"
        ))),
    }
}

fn strip(text: &str, mark: char) -> (bool, &str) {
    match text.trim().strip_prefix(mark) {
        Some(rest) => (true, rest),
        None => (false, text.trim()),
    }
}

fn parts(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|part| !part.is_empty())
}
