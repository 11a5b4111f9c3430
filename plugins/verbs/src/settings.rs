//! The variables that the plugin reads.

use std::{env, fmt};

/// `CCL_IB_HCA`: `[^][=]NAME[:PORT],...`. With `^` those are left out, with `=` names are whole, else beginnings of names.
pub(crate) struct Choice {
    said: String,
    exclude: bool,
    whole: bool,
    names: Vec<(String, Option<u8>)>,
}

impl Choice {
    pub(crate) fn of_environment() -> Result<Choice, String> {
        Choice::parse(&text("CCL_IB_HCA")?.unwrap_or_default())
    }

    fn parse(said: &str) -> Result<Choice, String> {
        let (exclude, rest) = said.strip_prefix('^').map_or((false, said), |rest| (true, rest));
        let (whole, rest) = rest.strip_prefix('=').map_or((false, rest), |rest| (true, rest));
        let name = |part: &str| match part.split_once(':') {
            None => Ok((part.to_owned(), None)),
            Some((name, port)) => match port.parse() {
                Ok(port) => Ok((name.to_owned(), Some(port))),
                Err(_) => Err(format!("CCL_IB_HCA={said}: {port:?} is no port")),
            },
        };
        let names = rest
            .split(',')
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

    pub(crate) fn takes(&self, name: &str, port: u8) -> bool {
        let fits = |(said, at): &(String, Option<u8>)| {
            let same = if self.whole {
                name == said
            } else {
                name.starts_with(said.as_str())
            };
            same && at.is_none_or(|at| at == port)
        };
        self.names.is_empty() || self.names.iter().any(fits) != self.exclude
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.said)
    }
}

fn text(name: &str) -> Result<Option<String>, String> {
    match env::var(name) {
        Ok(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Err(env::VarError::NotPresent) => Ok(None),
        Err(env::VarError::NotUnicode(_)) => Err(format!("{name} is no text")),
    }
}

/// A variable that is a number of a range.
pub(crate) fn number(name: &str, least: u32, most: u32) -> Result<Option<u32>, String> {
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
        ] {
            assert_eq!(
                Choice::parse(said).unwrap().takes(name, port),
                takes,
                "{said} {name}:{port}"
            );
        }
        assert!(Choice::parse("mlx5_0:a").is_err());
    }
}
