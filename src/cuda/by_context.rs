//! [`ByContext`]: what a process has once for each context.

use super::driver::{Context, Driver};
use crate::types::Result;
use std::sync::{Mutex, PoisonError};

/// By the context's id. It stays as long as the process does.
pub(super) struct ByContext<T>(Mutex<Vec<(u64, T)>>);

impl<T: Clone> ByContext<T> {
    pub(super) const fn new() -> Self {
        ByContext(Mutex::new(Vec::new()))
    }

    /// What this context has; made now, by one thread, if it has none.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda), and what making it ended with.
    pub(super) fn of(
        &self,
        driver: &Driver,
        context: Context,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let id = driver.id_of(context)?;
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, made)) = all.iter().find(|(of, _)| *of == id) {
            return Ok(made.clone());
        }
        let made = make()?;
        all.push((id, made.clone()));
        Ok(made)
    }
}
