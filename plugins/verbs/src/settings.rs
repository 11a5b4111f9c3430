//! The variables that the plugin reads, all of them when it is opened.

use std::{env, fmt};

/// What is set, or else as it is best.
pub(crate) struct Settings {
    pub(crate) choice: Choice,
    /// `CCL_IB_GID_INDEX`: the place of the port's address in its table.
    pub(crate) gid_index: Option<u32>,
    /// `CCL_SOCKET_FAMILY`, as for TCP: whether addresses of IPv6 are better.
    pub(crate) prefers_ipv6: bool,
    /// `CCL_IB_MTU` as verbs number it: 128 bytes by so many times two.
    pub(crate) mtu: Option<u32>,
    /// `CCL_IB_TIMEOUT`: 4.096 us by so many times two until a packet is sent again. 18 is a second.
    pub(crate) timeout: u8,
    /// `CCL_IB_RETRY_CNT`: how often. Some devices take 7 as for ever.
    pub(crate) retries: u8,
    /// `CCL_IB_SL`
    pub(crate) service_level: u8,
    /// `CCL_IB_TC`
    pub(crate) traffic_class: u8,
    /// `CCL_IB_PKEY`: the place of the partition's key in the port's table.
    pub(crate) pkey_index: u16,
    /// `CCL_IB_QPS_PER_CONNECTION`: queue pairs of each device in a direction of a link.
    pub(crate) connections: u32,
    /// `CCL_IB_FAULT`, for tests: `KIND:N` spoils the Nth write of this process.
    pub(crate) fault: Option<(Fault, u64)>,
}

/// What a test has go wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The write has a key that the other side does not know.
    WrongKey,
    /// The queue pair is destroyed instead.
    Destroyed,
    /// The queue pair is put into its error state before.
    Error,
}

impl Settings {
    pub(crate) fn of_environment() -> Result<Settings, String> {
        let small = |name, least, most, else_| {
            Ok::<u8, String>(number(name, least, most)?.map_or(else_, |n| n as u8))
        };
        Ok(Settings {
            choice: Choice::parse(&text("CCL_IB_HCA")?.unwrap_or_default())?,
            gid_index: number("CCL_IB_GID_INDEX", 0, 255)?,
            prefers_ipv6: text("CCL_SOCKET_FAMILY")?.is_some_and(|family| family == "AF_INET6"),
            mtu: match number("CCL_IB_MTU", 0, u32::MAX)? {
                None => None,
                Some(bytes) if bytes.is_power_of_two() && (256..=4096).contains(&bytes) => {
                    Some(bytes.ilog2() - 7)
                }
                Some(bytes) => return Err(format!("CCL_IB_MTU={bytes}: 256, 512, 1024, 2048 or 4096")),
            },
            timeout: small("CCL_IB_TIMEOUT", 1, 31, 18)?,
            retries: small("CCL_IB_RETRY_CNT", 0, 7, 6)?,
            service_level: small("CCL_IB_SL", 0, 15, 0)?,
            traffic_class: small("CCL_IB_TC", 0, 255, 0)?,
            pkey_index: number("CCL_IB_PKEY", 0, 65535)?.unwrap_or(0) as u16,
            connections: number("CCL_IB_QPS_PER_CONNECTION", 1, 8)?.unwrap_or(1),
            fault: text("CCL_IB_FAULT")?.map(|said| fault(&said)).transpose()?,
        })
    }
}

/// `CCL_IB_HCA`: `[^][=]NAME[:PORT],...`. With `^` those are left out, with `=` names are whole, else beginnings of names.
pub(crate) struct Choice {
    said: String,
    exclude: bool,
    whole: bool,
    names: Vec<One>,
}

/// A device, or the beginning of its name, and a port.
type One = (String, Option<u8>);

impl Choice {
    fn parse(said: &str) -> Result<Choice, String> {
        let (exclude, rest) = said.strip_prefix('^').map_or((false, said), |rest| (true, rest));
        let (whole, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        let name = |part: &str| {
            let (name, port) = part
                .split_once(':')
                .map_or((part, None), |(name, port)| (name, Some(port)));
            if name.is_empty() || name.contains(|c: char| c == '^' || c == '=' || c.is_whitespace()) {
                return Err(format!(
                    "CCL_IB_HCA={said}: {name:?} is no name of a device: ^ or = stand once, before all"
                ));
            }
            let is_none = |port| format!("CCL_IB_HCA={said}: {port:?} is no port");
            let port = port.map(|port| port.parse().map_err(|_| is_none(port)));
            Ok((name.to_owned(), port.transpose()?))
        };
        let names = rest
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
            .map(name)
            .collect::<Result<_, _>>()?;
        Ok(Choice {
            said: said.to_owned(),
            exclude,
            whole,
            names,
        })
    }

    /// Whether it says which are taken, and not only which are not.
    pub(crate) fn is_list(&self) -> bool {
        !self.exclude && !self.names.is_empty()
    }

    /// Whether each of a list is one device or port, and not the beginning of some.
    pub(crate) fn names_devices(&self) -> bool {
        self.is_list() && (self.whole || self.names.iter().all(|(_, port)| port.is_some()))
    }

    pub(crate) fn takes(&self, name: &str, port: u8) -> bool {
        let fits = |one: &One| self.fits(one, name, port);
        self.names.is_empty() || self.names.iter().any(fits) != self.exclude
    }

    fn fits(&self, (said, at): &One, name: &str, port: u8) -> bool {
        let same = if self.whole {
            name == said
        } else {
            name.starts_with(said.as_str())
        };
        same && at.is_none_or(|at| at == port)
    }

    /// What of a list fits none of these ports.
    pub(crate) fn missing(&self, ports: &[(String, u8)]) -> Vec<String> {
        let is_missing = |one: &&One| !ports.iter().any(|(name, port)| self.fits(one, name, *port));
        let text = |(name, port): &One| match port {
            None => name.clone(),
            Some(port) => format!("{name}:{port}"),
        };
        let missing = self.names.iter().filter(is_missing).map(text);
        missing.filter(|_| !self.exclude).collect()
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

fn fault(said: &str) -> Result<(Fault, u64), String> {
    let known = [
        ("wrong-key", Fault::WrongKey),
        ("destroyed", Fault::Destroyed),
        ("error", Fault::Error),
    ];
    let found = said.split_once(':').and_then(|(kind, at)| {
        let (_, fault) = known.into_iter().find(|(name, _)| *name == kind)?;
        Some((fault, at.parse().ok()?))
    });
    found.ok_or_else(|| format!("CCL_IB_FAULT={said}: wrong-key:N, destroyed:N or error:N"))
}

fn text(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("{name} is no text")),
    }
}

/// A variable that is a number of a range.
fn number(name: &str, least: u32, most: u32) -> Result<Option<u32>, String> {
    let Some(text) = text(name)? else { return Ok(None) };
    match text.parse() {
        Ok(n) if (least..=most).contains(&n) => Ok(Some(n)),
        _ => Err(format!("{name}={text}: a number from {least} to {most}")),
    }
}

#[cfg(test)]
mod tests {
    use super::Choice;

    #[test]
    fn devices_are_named_as_nccl_does() {
        for (said, name, port, takes) in [
            ("", "mlx5_0", 1, true),
            ("mlx5", "mlx5_0", 1, true),
            ("=mlx5", "mlx5_0", 1, false),
            ("=mlx5_0,mlx5_3:2", "mlx5_3", 2, true),
            ("=mlx5_0,mlx5_3:2", "mlx5_3", 1, false),
            ("^mlx5_1", "mlx5_10", 1, false),
            ("^=mlx5_1", "mlx5_10", 1, true),
            ("^=mlx5_1:1", "mlx5_1", 1, false),
            ("=mlx5_0, mlx5_1 ,", "mlx5_1", 1, true),
            ("^ mlx5_0, mlx5_1", "mlx5_1", 1, false),
        ] {
            assert_eq!(
                Choice::parse(said).unwrap().takes(name, port),
                takes,
                "{said} {name}:{port}"
            );
        }
        for wrong in [
            "mlx5_0:a",
            "mlx5_0:",
            ":1",
            "mlx5_0,^mlx5_1",
            "=mlx5_0,=mlx5_1",
            "mlx5_0 mlx5_1",
        ] {
            assert!(Choice::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_a_list_says_which_there_are() {
        let ports = [
            ("mlx5_0".to_owned(), 1),
            ("mlx5_0".to_owned(), 2),
            ("mlx5_1".to_owned(), 1),
        ];
        for (said, is_list, missing) in [
            ("", [false, false], ""),
            ("mlx5", [true, false], ""),
            ("mlx5_0:1,mlx5_1:1", [true, true], ""),
            ("=mlx5,mlx5_1:1", [true, true], "mlx5"),
            ("mlx5_0:3,mlx5_1,irdma", [true, false], "mlx5_0:3 irdma"),
            ("^mlx5_9", [false, false], ""),
            ("^=mlx5_9", [false, false], ""),
        ] {
            let choice = Choice::parse(said).unwrap();
            assert_eq!([choice.is_list(), choice.names_devices()], is_list, "{said}");
            assert_eq!(choice.missing(&ports).join(" "), missing, "{said}");
        }
    }
}
