//! [`Pending`]: an operation that goes on by itself, with the buffers that were moved into it.

use super::{
    Communicator, Side, Stream,
    collectives::{erased, rank, same_length},
    engine::{Engine, Start},
};
use crate::{
    exec::{Completion, Received, Wanted},
    mem::{Hold, Owned},
    types::{Collective, Element, Error, Op, Reduction, Result},
};
use std::{fmt, sync::Arc};

/// An operation that goes on by itself. It owns its buffers; [`Pending::wait`] gives them back.
///
/// Dropping it leaves the operation to itself: it goes on, and its buffers are freed at its end.
#[must_use = "its buffers come back by `wait`"]
pub struct Pending<B> {
    engine: Arc<Engine>,
    completion: Arc<Completion>,
    back: Box<dyn FnOnce(Option<Received>) -> Option<B> + Send>,
}

impl<B> Pending<B> {
    /// Whether the operation has ended.
    pub fn is_over(&self) -> bool {
        self.completion.is_over()
    }

    /// Waits until the operation has ended and gives back its buffers.
    ///
    /// # Errors
    /// Why the operation failed; its buffers are freed.
    pub fn wait(self) -> Result<B> {
        self.engine.membership.check()?;
        self.engine.wait_for(&self.completion);
        let received = self.engine.result(&self.completion)?;
        (self.back)(received)
            .ok_or_else(|| Error::internal("an operation has ended and still holds its buffers"))
    }
}

impl<B> fmt::Debug for Pending<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pending({:?})", self.completion)
    }
}

/// Begins operations that own their buffers: see [`Communicator::begin`].
#[derive(Debug, Clone, Copy)]
pub struct Begin<'c> {
    comm: &'c Communicator,
    stream: Option<&'c Stream>,
}

impl Communicator {
    /// Operations that go on by themselves, each on buffers that are moved into it and given back by [`Pending::wait`].
    ///
    /// Collective calls count in the order in which they are begun. Any number may be under way.
    ///
    /// ```no_run
    /// # fn overlap(comm: &ccl::Communicator, gradients: Vec<f32>) -> ccl::Result<Vec<f32>> {
    /// let sum = comm.begin().all_reduce(gradients, ccl::Op::Sum)?;
    /// // ... other work ...
    /// sum.wait()
    /// # }
    /// ```
    pub fn begin(&self) -> Begin<'_> {
        Begin {
            comm: self,
            stream: None,
        }
    }
}

/// Each method is the one of [`Communicator`] with the same name. Arguments are checked at once; buffers of a call that is
/// refused are dropped.
impl<'c> Begin<'c> {
    /// The operation begins when all that is in `stream` is over.
    pub fn on(self, stream: &'c Stream) -> Self {
        Begin {
            stream: Some(stream),
            ..self
        }
    }

    /// See [`Communicator::all_reduce_in_place`].
    pub fn all_reduce<T: Element>(self, data: Vec<T>, op: impl Reduction<T>) -> Result<Pending<Vec<T>>> {
        let count = data.len();
        self.in_place(Collective::AllReduce, data, count, op)
    }

    /// See [`Communicator::reduce_in_place`].
    pub fn reduce<T: Element>(
        self,
        data: Vec<T>,
        op: impl Reduction<T>,
        root: usize,
    ) -> Result<Pending<Vec<T>>> {
        let (root, count) = (rank(root), data.len());
        self.in_place(Collective::Reduce { root }, data, count, op)
    }

    /// See [`Communicator::broadcast_in_place`].
    pub fn broadcast<T: Element>(self, data: Vec<T>, root: usize) -> Result<Pending<Vec<T>>> {
        let (root, count) = (rank(root), data.len());
        self.in_place(Collective::Broadcast { root }, data, count, Op::Sum)
    }

    /// See [`Communicator::all_gather`]; gives back what was sent and what was received.
    pub fn all_gather<T: Element>(self, send: Vec<T>, recv: Vec<T>) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let count = send.len();
        self.apart(Collective::AllGather, Some(send), Some(recv), count, Op::Sum)
    }

    /// See [`Communicator::reduce_scatter`]; gives back what was sent and what was received.
    pub fn reduce_scatter<T: Element>(
        self,
        send: Vec<T>,
        recv: Vec<T>,
        op: impl Reduction<T>,
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let count = recv.len();
        self.apart(Collective::ReduceScatter, Some(send), Some(recv), count, op)
    }

    /// See [`Communicator::gather`]; gives back what was sent and what was received, nothing where there was no buffer.
    pub fn gather<T: Element>(
        self,
        send: Vec<T>,
        recv: Option<Vec<T>>,
        root: usize,
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let (root, count) = (rank(root), send.len());
        self.apart(Collective::Gather { root }, Some(send), recv, count, Op::Sum)
    }

    /// See [`Communicator::scatter`]; gives back what was sent, nothing where there was no buffer, and what was received.
    pub fn scatter<T: Element>(
        self,
        send: Option<Vec<T>>,
        recv: Vec<T>,
        root: usize,
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let (root, count) = (rank(root), recv.len());
        self.apart(Collective::Scatter { root }, send, Some(recv), count, Op::Sum)
    }

    /// See [`Communicator::all_to_all`]; gives back what was sent and what was received.
    pub fn all_to_all<T: Element>(self, send: Vec<T>, recv: Vec<T>) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let count = self.comm.block_of(same_length(send.len(), recv.len())?)?;
        self.apart(Collective::AlltoAll, Some(send), Some(recv), count, Op::Sum)
    }

    /// See [`Communicator::all_gather_v`]; gives back what was sent and what was received.
    pub fn all_gather_v<T: Element>(
        self,
        send: Vec<T>,
        recv: Vec<T>,
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let sides = [Side::Own(send.len()), Side::each(recv_counts, recv_displs)];
        self.vector(Collective::AllGatherV, sides, [Some(send), Some(recv)], Op::Sum)
    }

    /// See [`Communicator::reduce_scatter_v`]; gives back what was sent and what was received.
    pub fn reduce_scatter_v<T: Element>(
        self,
        send: Vec<T>,
        send_counts: &[usize],
        send_displs: &[usize],
        recv: Vec<T>,
        op: impl Reduction<T>,
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let sides = [Side::each(send_counts, send_displs), Side::Own(recv.len())];
        self.vector(Collective::ReduceScatterV, sides, [Some(send), Some(recv)], op)
    }

    /// See [`Communicator::gather_v`]; gives back what was sent and what was received, nothing where there was no buffer.
    pub fn gather_v<T: Element>(
        self,
        send: Vec<T>,
        recv: Option<(Vec<T>, &[usize], &[usize])>,
        root: usize,
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let (root, (recv, side)) = (rank(root), Side::of_root(recv));
        let sides = [Side::Own(send.len()), side];
        self.vector(Collective::GatherV { root }, sides, [Some(send), recv], Op::Sum)
    }

    /// See [`Communicator::scatter_v`]; gives back what was sent, nothing where there was no buffer, and what was received.
    pub fn scatter_v<T: Element>(
        self,
        send: Option<(Vec<T>, &[usize], &[usize])>,
        recv: Vec<T>,
        root: usize,
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let (root, (send, side)) = (rank(root), Side::of_root(send));
        let sides = [side, Side::Own(recv.len())];
        self.vector(Collective::ScatterV { root }, sides, [send, Some(recv)], Op::Sum)
    }

    /// See [`Communicator::all_to_all_v`]; gives back what was sent and what was received.
    pub fn all_to_all_v<T: Element>(
        self,
        send: Vec<T>,
        send_counts: &[usize],
        send_displs: &[usize],
        recv: Vec<T>,
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let sides = [
            Side::each(send_counts, send_displs),
            Side::each(recv_counts, recv_displs),
        ];
        self.vector(Collective::AlltoAllV, sides, [Some(send), Some(recv)], Op::Sum)
    }

    /// See [`Communicator::barrier`].
    pub fn barrier(self) -> Result<Pending<()>> {
        self.pending(|start| self.comm.begin_barrier(start), |_| Some(()))
    }

    /// See [`Communicator::send_tagged`].
    pub fn send<T: Element>(self, data: Vec<T>, to: usize, tag: i32) -> Result<Pending<Vec<T>>> {
        let owned = Owned::new(data);
        let hold = owned.hold();
        let begin = |start| self.comm.begin_send(hold, T::DTYPE, (to, tag), start);
        self.pending(begin, |_| owned.into_vec())
    }

    /// See [`Communicator::recv_tagged`]; gives back the buffer and what came.
    pub fn recv<T: Element>(
        self,
        data: Vec<T>,
        from: Option<usize>,
        tag: Option<i32>,
    ) -> Result<Pending<(Vec<T>, Received)>> {
        let owned = Owned::new(data);
        let wanted = Wanted {
            from,
            tag,
            dtype: T::DTYPE,
            exact: false,
        };
        let hold = owned.hold();
        let begin = |start| self.comm.begin_receive(hold, wanted, start);
        self.pending(begin, |received| Some((owned.into_vec()?, received?)))
    }

    fn in_place<T: Element>(
        self,
        collective: Collective,
        data: Vec<T>,
        count: usize,
        op: impl Reduction<T>,
    ) -> Result<Pending<Vec<T>>> {
        let owned = Owned::new(data);
        let whole = owned.hold();
        let part = |at, len| whole.part(at, len);
        let bytes = whole.region().len();
        let memory = self.comm.in_place(collective, bytes, (count, T::DTYPE), part)?;
        drop(whole);
        let begin = |start| {
            self.comm
                .begin_collective(collective, memory, (count, T::DTYPE, erased(op)), start)
        };
        self.pending(begin, |_| owned.into_vec())
    }

    fn apart<T: Element>(
        self,
        collective: Collective,
        send: Option<Vec<T>>,
        recv: Option<Vec<T>>,
        count: usize,
        op: impl Reduction<T>,
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        self.on_both([send, recv], |memory, start| {
            self.comm
                .begin_collective(collective, memory, (count, T::DTYPE, erased(op)), start)
        })
    }

    fn vector<T: Element>(
        self,
        collective: Collective,
        sides: [Side<'_>; 2],
        vectors: [Option<Vec<T>>; 2],
        op: impl Reduction<T>,
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let blocks = self.comm.given(collective, sides, T::DTYPE)?;
        self.on_both(vectors, |memory, start| {
            let memory = memory.map(|hold| hold.unwrap_or_else(Hold::empty));
            self.comm
                .begin_given(collective, blocks, memory, (T::DTYPE, erased(op)), start)
        })
    }

    /// Has `begin` begin an operation on what is sent and what is received.
    fn on_both<T: Element>(
        self,
        vectors: [Option<Vec<T>>; 2],
        begin: impl FnOnce([Option<Hold>; 2], Start) -> Result<()>,
    ) -> Result<Pending<(Vec<T>, Vec<T>)>> {
        let owned = vectors.map(|vector| vector.map(Owned::new));
        let memory = owned.each_ref().map(|owned| owned.as_ref().map(Owned::hold));
        self.pending(
            |start| begin(memory, start),
            |_| {
                let [send, recv] = owned.map(|owned| owned.map_or(Some(Vec::new()), Owned::into_vec));
                Some((send?, recv?))
            },
        )
    }

    fn pending<B>(
        self,
        begin: impl FnOnce(Start) -> Result<()>,
        back: impl FnOnce(Option<Received>) -> Option<B> + Send + 'static,
    ) -> Result<Pending<B>> {
        self.comm.engine.membership.check()?;
        self.stream.map_or(Ok(()), Stream::check)?;
        let _order = self.stream.map(Stream::in_order);
        let start = match self.stream {
            Some(stream) => stream.enter(&self.comm.engine, |_| ()),
            None => Start::default(),
        };
        let completion = start.completion.clone();
        // A call that is refused has no place in the stream.
        begin(start).inspect_err(|_| completion.finish(Ok(None)))?;
        Ok(Pending {
            engine: Arc::clone(&self.comm.engine),
            completion,
            back: Box::new(back),
        })
    }
}
