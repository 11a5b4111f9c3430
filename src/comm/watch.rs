//! [`Watch`]: lets a rank's stream go where the communicator has failed.

use super::engine::Engine;
use crate::{
    cuda::flags::Flags,
    sys::thread::spawn_quiet,
    types::{Error, Result},
};
use std::{sync::Arc, thread, time::Duration};

/// A thread that waits for the communicator's failure, and from then on lets the stream go wherever it waits for other ranks. It never
/// calls the driver. It ends as soon as no stream needs it once the rank has left ([`Flags::leave`]), of which who waits for the communicator
/// to change is to be told.
pub(super) struct Watch {
    flags: Arc<Flags>,
}

impl Watch {
    /// # Errors
    /// [`Error::System`] when the system has no room for a thread.
    pub(super) fn begin(engine: &Arc<Engine>, flags: Arc<Flags>) -> Result<()> {
        let both = Some((Watch { flags }, Arc::clone(engine)));
        spawn_quiet(c"ccl-watch", both, |both| {
            if let Some((watch, engine)) = both.take()
                && watch.await_failure(&engine)
            {
                drop(engine);
                watch.release();
            }
        })
        .map_err(|e| Error::system("cannot start a thread that watches over streams", e))
    }

    /// Waits until the communicator fails, or the rank leaves: whether there may be streams that wait for ever. Of a communicator that it has
    /// left nobody tells the rank anything any more; its graphs, which are not launched then, may be there all the same.
    fn await_failure(&self, engine: &Engine) -> bool {
        let health = &engine.membership;
        loop {
            let is_used = !self.flags.are_over() || self.flags.are_captured();
            if let Some(cause) = engine.hopeless(is_used) {
                engine.fail(cause);
                return true;
            }
            if self.flags.has_left() {
                return !self.flags.are_over();
            }
            let is_closed = || engine.closed().is_some();
            match health.trouble() {
                // A rank died; whether that matters to a stream is not told.
                true => thread::sleep(TROUBLED_NAP),
                false => {
                    health.await_change(LONG, || self.flags.has_left() || is_closed() || health.trouble());
                }
            }
        }
    }

    /// Lets the stream go again and again, until nothing waits any more, and nothing can. Then the rank has left the others' memory.
    fn release(&self) {
        self.flags.fail();
        let mut nap = SHORT_NAP;
        while !self.flags.tell_left() {
            let is_over = self.flags.are_over() && !self.flags.are_captured();
            self.flags.release();
            thread::sleep(nap);
            nap = match is_over {
                true => LONG_NAP,
                false => (nap * 2).min(LONG_NAP),
            };
        }
    }
}

/// How long one waits for a change that is told.
const LONG: Duration = Duration::from_secs(3600);
/// How often it is looked whether a stream needs a rank that died.
const TROUBLED_NAP: Duration = Duration::from_millis(20);
/// Between two times that the stream is let go: at first, and at last.
const SHORT_NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_millis(5);
