//! [`Buffers`]: a call's memory, checked before anything moves.

use crate::{
    mem::Region,
    plan::definition::Held,
    types::{Collective, DType, Error, Result},
};
use std::{cmp::Ordering, ops::Range};

/// A call's memory on this rank: what it holds of the vector that is sent and of the one that is received.
#[derive(Debug, Clone, Copy)]
pub(super) struct Buffers<'m> {
    pub(super) input: Region<'m>,
    pub(super) output: Region<'m>,
    /// The elements of the vector at which the two begin.
    pub(super) begins: [usize; 2],
}

impl<'m> Buffers<'m> {
    /// Checks that buffers are as long as what this rank holds, and lie apart or in place. What it holds nothing in is not
    /// looked at.
    ///
    /// # Errors
    /// [`Error::Invalid`] that says what was wrong, what was wanted, and by how much.
    pub(super) fn new(
        collective: Collective,
        held: &Held,
        input: Option<Region<'m>>,
        output: Option<Region<'m>>,
        dtype: DType,
    ) -> Result<Self> {
        let input = checked(collective, "send buffer", input, &held.input, dtype)?;
        let output = checked(collective, "receive buffer", output, &held.output, dtype)?;
        let buffers = Buffers {
            input,
            output,
            begins: [held.input.start, held.output.start],
        };
        buffers.lie_right(dtype)?;
        Ok(buffers)
    }

    /// Refuses buffers that share memory, unless each part of the vector lies at the same place in both.
    fn lie_right(&self, dtype: DType) -> Result<()> {
        if !self.input.overlaps(&self.output) {
            return Ok(());
        }
        let [sent, received] = self.begins.map(|begin| begin * dtype.size());
        let (input, output) = (self.input.as_ptr().addr(), self.output.as_ptr().addr());
        if input.wrapping_sub(sent) == output.wrapping_sub(received) {
            return Ok(());
        }
        let is = from(input, output);
        let wanted = from(sent, received);
        Err(Error::invalid(format!(
            "the send and receive buffers overlap: the receive buffer begins {is} the send buffer. In place it must begin \
             {wanted} it; otherwise the two must lie apart"
        )))
    }
}

/// Where `there` is, seen from `here`.
fn from(here: usize, there: usize) -> String {
    match there.cmp(&here) {
        Ordering::Less => format!("{} bytes before", here - there),
        Ordering::Equal => "together with".to_owned(),
        Ordering::Greater => format!("{} bytes after", there - here),
    }
}

/// The buffer for the elements `held` of the vector.
fn checked<'m>(
    collective: Collective,
    what: &str,
    buffer: Option<Region<'m>>,
    held: &Range<usize>,
    dtype: DType,
) -> Result<Region<'m>> {
    // The vector's bytes are a number, see `definition::total`.
    let (count, bytes) = (held.len(), held.len() * dtype.size());
    match buffer {
        _ if bytes == 0 => Ok(Region::empty()),
        // Everybody else has both.
        None => Err(Error::invalid(format!(
            "the root of a {} needs a {what} of {count} elements of {dtype}",
            collective.name()
        ))),
        Some(buffer) if buffer.len() != bytes => Err(Error::invalid(format!(
            "the {what} has {} bytes: {count} elements of {dtype} need {bytes}",
            buffer.len()
        ))),
        Some(buffer) => Ok(buffer),
    }
}
