//! [`Events`]: points in streams that other streams wait for.

use super::{
    by_context::ByContext,
    driver::{Context, Current, Driver, Event, Stream},
};
use crate::types::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events of one context, which are used again and again. They stay as long as the process does: who drops the last use may be a forked
/// process, or the context is gone.
#[derive(Default)]
pub(crate) struct Events(Mutex<Vec<Event>>);

static ALL: ByContext<Arc<Events>> = ByContext::new();

/// A point in a stream.
pub(crate) struct Point {
    /// None once it was given back.
    event: Option<Event>,
    of: Arc<Events>,
}

impl Events {
    /// Those of this context.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda).
    pub(super) fn of(driver: &'static Driver, context: Context) -> Result<Arc<Self>> {
        ALL.of(driver, context, || Ok(Arc::default()))
    }

    /// The point after all that is in `stream` now. The context is the same in all calls.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda).
    pub(crate) fn record(
        self: &Arc<Self>,
        current: &Current<'_>,
        driver: &'static Driver,
        stream: Stream,
    ) -> Result<Point> {
        let idle = self.idle().pop();
        let event = idle.map_or_else(|| Event::new(current, driver), Ok)?;
        event.record(stream)?;
        Ok(Point {
            event: Some(event),
            of: Arc::clone(self),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Point {
    /// Has `stream` wait for it.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda).
    pub(crate) fn wait(&self, _current: &Current<'_>, stream: Stream) -> Result<()> {
        self.event.as_ref().map_or(Ok(()), |event| event.wait(stream))
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // Streams that were told to wait for it do so, wherever it is recorded next.
        self.of.idle().extend(self.event.take());
    }
}
