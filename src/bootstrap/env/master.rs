//! [`MasterPort`]: where rank 0 of a job on several hosts listens.

use crate::types::{Error, Result};

/// What the variables say of it. It is looked at only when ranks are on several hosts, so that nobody else needs one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct MasterPort {
    /// `CCL_MASTER_PORT`: the port itself.
    pub(super) own: Option<String>,
    /// `MASTER_PORT`, which belongs to torchrun's store: ours is the next one.
    pub(super) launcher_s: Option<String>,
    /// Made of a job's numbers.
    pub(super) derived: Option<u16>,
}

impl MasterPort {
    /// # Errors
    /// [`Error::Usage`] that names the variable to set.
    pub(super) fn number(&self) -> Result<u16> {
        if let Some(text) = &self.own {
            return port(text).ok_or_else(|| {
                Error::usage(format!(
                    "CCL_MASTER_PORT={text} is no port: it must be a number from 1 to 65535"
                ))
            });
        }
        if let Some(text) = &self.launcher_s {
            return port(text).and_then(|port| port.checked_add(1)).ok_or_else(|| {
                Error::usage(format!(
                    "MASTER_PORT={text} has no port after it: rank 0 listens on the next one, so it must be a \
                     number from 1 to 65534; or set CCL_MASTER_PORT"
                ))
            });
        }
        self.derived.ok_or_else(|| {
            Error::usage(
                "ranks on several hosts need a port where rank 0 listens: set CCL_MASTER_PORT to the same free port \
                 on all ranks",
            )
        })
    }
}

fn port(text: &str) -> Option<u16> {
    text.trim().parse().ok().filter(|&port| port > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(own: Option<&str>, launcher_s: Option<&str>, derived: Option<u16>) -> Result<u16, String> {
        let (own, launcher_s) = (own.map(str::to_owned), launcher_s.map(str::to_owned));
        let port = MasterPort {
            own,
            launcher_s,
            derived,
        };
        port.number().map_err(|error| error.to_string())
    }

    #[test]
    fn one_s_own_before_the_launcher_s_before_a_derived_one() {
        assert_eq!(number(Some("7"), Some("29500"), Some(9)), Ok(7));
        assert_eq!(number(None, Some("29500"), Some(9)), Ok(29501));
        assert_eq!(number(None, None, Some(9)), Ok(9));
    }

    #[test]
    fn mistakes_name_the_variable() {
        for bad in ["0", "65536", "http", "-1"] {
            assert!(
                number(Some(bad), None, None)
                    .unwrap_err()
                    .starts_with("CCL_MASTER_PORT="),
                "{bad}"
            );
        }
        for bad in ["0", "65535", "http"] {
            assert!(
                number(None, Some(bad), None)
                    .unwrap_err()
                    .starts_with("MASTER_PORT="),
                "{bad}"
            );
        }
        assert!(
            number(None, None, None)
                .unwrap_err()
                .contains("set CCL_MASTER_PORT")
        );
    }
}
