//! [`Variables`]: environment variables, from wherever they come.

use crate::types::{Error, Result};
use std::{env, fmt};

/// Looks variables up. One that is empty is taken for one that is not set.
///
/// A look-up and no map, so that nobody makes copies of all the environment, secrets included.
pub(crate) struct Variables<'a> {
    look_up: &'a dyn Fn(&str) -> Option<String>,
}

/// A variable that is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) value: String,
}

impl Variables<'static> {
    /// Those of this process. What is not UTF-8 in them is replaced by marks that fit nothing.
    pub(crate) fn of_this_process() -> Self {
        Variables {
            look_up: &|name| Some(env::var_os(name)?.to_string_lossy().into_owned()),
        }
    }
}

impl<'a> Variables<'a> {
    /// Those that `look_up` knows.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn of(look_up: &'a dyn Fn(&str) -> Option<String>) -> Self {
        Variables { look_up }
    }

    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.look_up)(name).filter(|value| !value.is_empty())
    }

    /// The first of `names` that is set.
    pub(super) fn first(&self, names: &[&str]) -> Option<Set> {
        names.iter().find_map(|&name| {
            Some(Set {
                name: name.to_owned(),
                value: self.text(name)?,
            })
        })
    }

    /// A number, which is `what`.
    ///
    /// # Errors
    /// [`Error::Usage`] when it is none.
    pub(super) fn number(&self, name: &str, what: &str) -> Result<Option<usize>> {
        let Some(text) = self.text(name) else {
            return Ok(None);
        };
        let number = text.trim().parse();
        number
            .map(Some)
            .map_err(|_| Error::usage(format!("{name}={text} is no number: it must be {what}")))
    }
}

impl fmt::Display for Set {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}
