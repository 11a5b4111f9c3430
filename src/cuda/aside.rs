//! A stream of the library's own in each context, for what is done at once.
//!
//! It waits for no other stream, and no other for it. The default one waits for those that the program has not made otherwise, and while one of
//! these is captured, on whatever thread, whoever gives anything to the default one spoils the capture.

use super::{
    by_context::ByContext,
    driver::{Context, Driver, Stream},
    queues,
};
use crate::types::Result;

/// They stay as long as the process does.
static STREAMS: ByContext<Stream> = ByContext::new();

/// That of this context.
///
/// # Errors
/// [`Error::Cuda`](crate::Error::Cuda).
pub(super) fn stream(driver: &'static Driver, context: Context) -> Result<Stream> {
    STREAMS.of(driver, context, || {
        let current = driver.enter(context)?;
        let stream = current.new_stream()?;
        queues::settle(driver, &current, context, stream).map(|()| stream)
    })
}
