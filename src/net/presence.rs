//! [`Presence`]: by which interfaces and ports a process may be reached.

use super::Selection;
use crate::types::Error;
use std::{env, ops::RangeInclusive};

/// What a program says of the network, else the environment; `None` where it says nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Said<'a> {
    pub(crate) interfaces: Option<&'a str>,
    pub(crate) subnets: Option<&'a str>,
    pub(crate) family: Option<&'a str>,
    pub(crate) ports: Option<&'a str>,
}

/// By which interfaces and ports a process may be reached.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Presence {
    pub(crate) selection: Selection,
    /// Where it listens: any port, if nothing is said.
    pub(crate) ports: Option<RangeInclusive<u16>>,
}

impl Presence {
    /// # Errors
    /// [`Error::Usage`] for what cannot be meant.
    pub(crate) fn new(said: Said<'_>) -> Result<Presence, Error> {
        let names = setting("interfaces", said.interfaces, "CCL_SOCKET_IFNAME")?;
        let subnets = setting("subnets", said.subnets, "CCL_SOCKET_SUBNET")?;
        let family = setting("family", said.family, "CCL_SOCKET_FAMILY")?;
        let ports = setting("ports", said.ports, "CCL_PORT_RANGE")?;
        let selection = Selection::new(pair(&names), pair(&subnets), pair(&family))?;
        Ok(Presence {
            selection,
            ports: ports.map(|(name, text)| range(name, &text)).transpose()?,
        })
    }
}

/// A setting and the name by which it was set, in a program or else in the environment.
///
/// # Errors
/// [`Error::Usage`] for a variable that is no text.
pub(crate) fn setting(
    field: &'static str,
    said: Option<&str>,
    variable: &'static str,
) -> Result<Option<(&'static str, String)>, Error> {
    match (said.filter(|text| !text.is_empty()), env::var(variable)) {
        (Some(text), _) => Ok(Some((field, text.to_owned()))),
        (None, Ok(text)) => Ok((!text.is_empty()).then_some((variable, text))),
        (None, Err(env::VarError::NotPresent)) => Ok(None),
        (None, Err(env::VarError::NotUnicode(_))) => Err(Error::usage(format!("{variable} is not UTF-8"))),
    }
}

fn pair<'a>(setting: &'a Option<(&'static str, String)>) -> Option<(&'a str, &'a str)> {
    setting.as_ref().map(|(name, text)| (*name, text.as_str()))
}

fn range(name: &str, text: &str) -> Result<RangeInclusive<u16>, Error> {
    let ends = text.trim().split_once('-');
    let parsed = ends.and_then(|(low, high)| Some((low.trim().parse().ok()?, high.trim().parse().ok()?)));
    match parsed {
        Some((low, high)) if 0 < low && low <= high => Ok(low..=high),
        _ => Err(Error::usage(format!(
            "{name}={text:?} is no range of ports: write the lowest and the highest of them as in 40000-40100, each from 1 to \
             65535"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_ports() {
        let of = |text| {
            let said = Said {
                ports: Some(text),
                ..Said::default()
            };
            Presence::new(said).map(|presence| presence.ports)
        };
        assert_eq!(of("40000-40100").unwrap(), Some(40_000..=40_100));
        assert_eq!(of(" 7 - 7 ").unwrap(), Some(7..=7));
        assert_eq!(of("").unwrap(), None);
        for bad in ["40000", "2-1", "0-5", "1-65536", "a-b", "1-2-3"] {
            let error = of(bad).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("ports={bad:?} is no range of ports")),
                "{error}"
            );
        }
    }
}
