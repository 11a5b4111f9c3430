//! [`Events`]: points in streams that other streams wait for, and by which is known whether a stream goes on.

use super::{
    by_context::ByContext,
    driver::{Context, Current, Driver, Event, Stream},
};
use crate::types::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Events of one context, which are used again and again. They stay as long as the process does: who drops the last use may be a forked
/// process, or the context is gone.
pub(crate) struct Events {
    driver: &'static Driver,
    context: Context,
    idle: Mutex<Vec<Event>>,
}

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
    pub(crate) fn of(driver: &'static Driver, context: Context) -> Result<Arc<Self>> {
        let none = || Events {
            driver,
            context,
            idle: Mutex::default(),
        };
        ALL.of(driver, context, || Ok(Arc::new(none())))
    }

    /// The point after all that is in `stream` now, which is of this context, the current one.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda).
    pub(crate) fn record(self: &Arc<Self>, current: &Current<'_>, stream: Stream) -> Result<Point> {
        let idle = self.idle().pop();
        let event = idle.map_or_else(|| Event::new(current, self.driver), Ok)?;
        event.record(stream)?;
        Ok(Point {
            event: Some(event),
            of: Arc::clone(self),
        })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Event>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Checks that the stream comes to it, or has, be the stream there or not.
    ///
    /// # Errors
    /// [`Error::Cuda`](crate::Error::Cuda) if it never will.
    pub(crate) fn check(&self) -> Result<()> {
        let current = self.of.driver.enter(self.of.context)?;
        self.event.as_ref().map_or(Ok(()), |event| event.check(&current))
    }
}

impl Drop for Point {
    fn drop(&mut self) {
        // Streams that were told to wait for it do so, wherever it is recorded next.
        self.of.idle().extend(self.event.take());
    }
}
