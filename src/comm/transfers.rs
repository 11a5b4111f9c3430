//! Messages between two ranks.

use super::{Communicator, engine::Start};
use crate::{
    exec::{Completion, Message, Received, Wanted},
    mem::{Hold, Region, scope},
    types::{DType, Element, Error, Result},
};
use smallvec::SmallVec;

/// # Messages
///
/// One rank sends and another receives, without the others. A message goes to the first of the receiver's calls, in their
/// order, that takes its sender and its tag; messages of one rank with one tag arrive in the order in which they were
/// sent. A send may return before its message was received: up to 8 KiB travel ahead, 32 messages or
/// more, once the receiver is in a call of this communicator.
///
/// Both sides must give the same type, and [`Communicator::recv`] as many elements as were sent; otherwise all ranks fail
/// with a [`Cause::Mismatch`](crate::Cause::Mismatch) that names both calls.
impl Communicator {
    /// Sends `data` to rank `to` with tag 0.
    ///
    /// # Errors
    /// See [operations](#operations). A rank sends to itself in a [`Communicator::scope`], where the receive goes on beside
    /// it; [`Error::Usage`] elsewhere.
    pub fn send<T: Element>(&self, data: &[T], to: usize) -> Result<()> {
        self.send_tagged(data, to, 0)
    }

    /// Sends `data` to rank `to` with a tag of 0 or more, by which the receiver can tell messages apart.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn send_tagged<T: Element>(&self, data: &[T], to: usize, tag: i32) -> Result<()> {
        self.send_now(Region::of(data), T::DTYPE, to, tag)
    }

    /// Receives a message with tag 0 from rank `from` that is just as long as `data`.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn recv<T: Element>(&self, data: &mut [T], from: usize) -> Result<()> {
        self.receive_now(Region::of_mut(data), Wanted::exactly(from, T::DTYPE))
            .map(|_| ())
    }

    /// Receives a message of at most the length of `data`, from rank `from` or, with `None`, from any other, and with this
    /// tag or, with `None`, any. Returns what came; the rest of `data` stays as it is.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn recv_tagged<T: Element>(
        &self,
        data: &mut [T],
        from: Option<usize>,
        tag: Option<i32>,
    ) -> Result<Received> {
        let wanted = Wanted {
            from,
            tag,
            dtype: T::DTYPE,
            exact: false,
        };
        self.receive_now(Region::of_mut(data), wanted)
    }

    /// Sends `data` to rank `to` and receives from rank `from` a message that is just as long as `into`, both at once and with tag 0. Each may
    /// be this rank, if both are.
    ///
    /// # Errors
    /// As [`Communicator::send`].
    pub fn send_recv<S: Element, R: Element>(
        &self,
        data: &[S],
        to: usize,
        into: &mut [R],
        from: usize,
    ) -> Result<()> {
        match (to == self.rank(), from == self.rank()) {
            (true, false) => return Err(self.to_itself("send", "receive")),
            (false, true) => return Err(self.to_itself("receive", "send")),
            _ => {}
        }
        self.carry_out(&mut [
            Message::Send {
                to,
                tag: 0,
                dtype: S::DTYPE,
                data: Region::of(data),
            },
            Message::Receive {
                wanted: Wanted::exactly(from, R::DTYPE),
                data: Region::of_mut(into),
                got: None,
            },
        ])
    }

    pub(crate) fn send_now(&self, data: Region<'_>, dtype: DType, to: usize, tag: i32) -> Result<()> {
        self.check_message(Some(to), Some(tag))?;
        if to == self.rank() {
            return Err(self.to_itself("send", "receive"));
        }
        self.carry_out(&mut [Message::Send { to, tag, dtype, data }])
    }

    pub(crate) fn receive_now(&self, data: Region<'_>, wanted: Wanted) -> Result<Received> {
        if wanted.from == Some(self.rank()) {
            return Err(self.to_itself("receive", "send"));
        }
        let mut messages = [Message::Receive {
            wanted,
            data,
            got: None,
        }];
        self.carry_out(&mut messages)?;
        match messages {
            [Message::Receive { got: Some(got), .. }] => Ok(got),
            _ => Err(Error::internal("a receive ended without saying what it got")),
        }
    }

    /// Sends and receives messages, all at once, and waits for the end of all.
    ///
    /// # Errors
    /// The first failure.
    pub(crate) fn carry_out(&self, messages: &mut [Message<'_>]) -> Result<()> {
        for message in &*messages {
            match message {
                Message::Send { to, tag, .. } => self.check_message(Some(*to), Some(*tag))?,
                Message::Receive { wanted, .. } => self.check_message(wanted.from, wanted.tag)?,
            }
        }
        let mut over: SmallVec<[bool; 8]> = SmallVec::from_elem(false, messages.len());
        match self.engine.briefly(messages, &mut over) {
            Some(done) => done.map_err(|error| *error),
            None => self.carry_on(messages, &over),
        }
    }

    /// The same for those that are not over, as any operations.
    #[inline(never)]
    fn carry_on(&self, messages: &mut [Message<'_>], over: &[bool]) -> Result<()> {
        let left = messages.iter().zip(over).filter(|(_, over)| !**over);
        let left: SmallVec<[_; 2]> = left.map(|(message, _)| (message, Completion::new())).collect();
        let mut begun = Ok(());
        scope(
            |lender| {
                begun = self.engine.attend(lender, &left);
                if begun.is_err() {
                    left.iter()
                        .for_each(|(_, completion)| completion.finish(Ok(None)));
                }
            },
            || {
                left.iter()
                    .for_each(|(_, completion)| self.engine.wait_for(completion))
            },
        );
        begun?;
        let ended: SmallVec<[_; 2]> = left
            .into_iter()
            .map(|(_, completion)| self.engine.result(&completion))
            .collect();
        let mut outcome = Ok(());
        let left = messages.iter_mut().zip(over).filter(|(_, over)| !**over);
        for ((message, _), ended) in left.zip(ended) {
            match (ended, message) {
                (Ok(received), Message::Receive { got, .. }) => *got = received,
                (Ok(_), Message::Send { .. }) => {}
                (Err(error), _) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    /// Checks and begins a send.
    pub(crate) fn begin_send(
        &self,
        data: Hold,
        dtype: DType,
        (to, tag): (usize, i32),
        start: Start,
    ) -> Result<()> {
        self.check_message(Some(to), Some(tag))?;
        self.engine.send(data, dtype, (to, tag), start)
    }

    /// Checks and begins a receive.
    pub(crate) fn begin_receive(&self, data: Hold, wanted: Wanted, start: Start) -> Result<()> {
        self.check_message(wanted.from, wanted.tag)?;
        self.engine.receive(data, wanted, start)
    }

    /// Checks the other rank and the tag of a message; those that are not given are right.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a rank outside the communicator and for a tag below 0.
    pub(crate) fn check_message(&self, peer: Option<usize>, tag: Option<i32>) -> Result<()> {
        if let Some(peer) = peer.filter(|&peer| peer >= self.ranks()) {
            return Err(Error::invalid(format!(
                "a message to or from rank {peer}, which is outside the communicator: its ranks are 0 to {}",
                self.ranks() - 1
            )));
        }
        if let Some(tag) = tag.filter(|&tag| tag < 0) {
            return Err(Error::invalid(format!("tag {tag}: tags are 0 to {}", i32::MAX)));
        }
        Ok(())
    }

    fn to_itself(&self, this: &str, other: &str) -> Error {
        Error::usage(format!(
            "rank {} is both sides of this {this}, and the call would wait for its {other}: put the two into one group, or into two streams",
            self.rank()
        ))
    }
}
