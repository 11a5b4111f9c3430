//! [`Scope`]: operations that go on side by side, on borrowed buffers.

use super::{
    Communicator, Side,
    collectives::{erased, rank, same_length},
    engine::Start,
};
use crate::{
    exec::{Completion, Received, Wanted},
    mem::{self, Lender, Region},
    types::{Collective, DType, Element, Op, Reducing, Reduction, Result},
};
use std::{cell::RefCell, sync::Arc};

/// What [`Communicator::scope`] gives: it begins operations, which are over when the scope has ended.
///
/// Each method is the one of [`Communicator`] with the same name, begun and not waited for; arguments are checked at once.
pub struct Scope<'scope, 'env> {
    comm: &'scope Communicator,
    lender: &'scope Lender<'env>,
    begun: &'scope RefCell<Vec<Arc<Completion>>>,
}

/// A receive of a [`Scope`].
#[derive(Debug)]
pub struct Message(Arc<Completion>);

impl Message {
    /// What was received; `None` while that has not ended, and if it failed.
    pub fn received(&self) -> Option<Received> {
        self.0.outcome()?.ok().flatten()
    }
}

impl Communicator {
    /// Runs `body`, whose operations go on side by side, and waits until all are over: collective calls in their order,
    /// sends and receives in any order without deadlock. Buffers are borrowed until the scope has ended.
    ///
    /// ```no_run
    /// # fn shift(comm: &ccl::Communicator, ours: &[f32], theirs: &mut [f32]) -> ccl::Result<()> {
    /// let (rank, ranks) = (comm.rank(), comm.ranks());
    /// comm.scope(|scope| {
    ///     scope.send(ours, (rank + 1) % ranks)?;
    ///     scope.recv(theirs, (rank + ranks - 1) % ranks)
    /// })
    /// # }
    /// ```
    ///
    /// # Errors
    /// What `body` returns, else the first failure of an operation.
    pub fn scope<'env, R>(
        &self,
        body: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> Result<R>,
    ) -> Result<R> {
        let begun = RefCell::new(Vec::new());
        let outcome = mem::scope(
            |lender| {
                body(&Scope {
                    comm: self,
                    lender,
                    begun: &begun,
                })
            },
            || begun.borrow().iter().for_each(|one| self.engine.wait_for(one)),
        );
        let value = outcome?;
        for one in begun.into_inner() {
            self.engine.result(&one)?;
        }
        Ok(value)
    }
}

impl<'env> Scope<'_, 'env> {
    /// See [`Communicator::all_reduce`].
    pub fn all_reduce<T: Element>(
        &self,
        send: &'env [T],
        recv: &'env mut [T],
        op: impl Reduction<T>,
    ) -> Result<()> {
        let count = same_length(send.len(), recv.len())?;
        self.apart(Collective::AllReduce, Some(send), Some(recv), count, op)
    }

    /// See [`Communicator::all_reduce_in_place`].
    pub fn all_reduce_in_place<T: Element>(&self, data: &'env mut [T], op: impl Reduction<T>) -> Result<()> {
        let count = data.len();
        self.in_place(Collective::AllReduce, data, count, op)
    }

    /// See [`Communicator::reduce`].
    pub fn reduce<T: Element>(
        &self,
        send: &'env [T],
        recv: Option<&'env mut [T]>,
        op: impl Reduction<T>,
        root: usize,
    ) -> Result<()> {
        let root = rank(root);
        self.apart(Collective::Reduce { root }, Some(send), recv, send.len(), op)
    }

    /// See [`Communicator::broadcast`].
    pub fn broadcast<T: Element>(
        &self,
        send: Option<&'env [T]>,
        recv: &'env mut [T],
        root: usize,
    ) -> Result<()> {
        let (root, count) = (rank(root), recv.len());
        self.apart(Collective::Broadcast { root }, send, Some(recv), count, Op::Sum)
    }

    /// See [`Communicator::broadcast_in_place`].
    pub fn broadcast_in_place<T: Element>(&self, data: &'env mut [T], root: usize) -> Result<()> {
        let (root, count) = (rank(root), data.len());
        self.in_place(Collective::Broadcast { root }, data, count, Op::Sum)
    }

    /// See [`Communicator::all_gather`].
    pub fn all_gather<T: Element>(&self, send: &'env [T], recv: &'env mut [T]) -> Result<()> {
        self.apart(Collective::AllGather, Some(send), Some(recv), send.len(), Op::Sum)
    }

    /// See [`Communicator::reduce_scatter`].
    pub fn reduce_scatter<T: Element>(
        &self,
        send: &'env [T],
        recv: &'env mut [T],
        op: impl Reduction<T>,
    ) -> Result<()> {
        let count = recv.len();
        self.apart(Collective::ReduceScatter, Some(send), Some(recv), count, op)
    }

    /// See [`Communicator::gather`].
    pub fn gather<T: Element>(
        &self,
        send: &'env [T],
        recv: Option<&'env mut [T]>,
        root: usize,
    ) -> Result<()> {
        let root = rank(root);
        self.apart(Collective::Gather { root }, Some(send), recv, send.len(), Op::Sum)
    }

    /// See [`Communicator::scatter`].
    pub fn scatter<T: Element>(
        &self,
        send: Option<&'env [T]>,
        recv: &'env mut [T],
        root: usize,
    ) -> Result<()> {
        let (root, count) = (rank(root), recv.len());
        self.apart(Collective::Scatter { root }, send, Some(recv), count, Op::Sum)
    }

    /// See [`Communicator::all_to_all`].
    pub fn all_to_all<T: Element>(&self, send: &'env [T], recv: &'env mut [T]) -> Result<()> {
        let count = self.comm.block_of(same_length(send.len(), recv.len())?)?;
        self.apart(Collective::AlltoAll, Some(send), Some(recv), count, Op::Sum)
    }

    /// See [`Communicator::all_gather_v`].
    pub fn all_gather_v<T: Element>(
        &self,
        send: &'env [T],
        recv: &'env mut [T],
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<()> {
        let sides = [Side::Own(send.len()), Side::each(recv_counts, recv_displs)];
        let memory = [Region::of(send), Region::of_mut(recv)];
        self.vector(Collective::AllGatherV, sides, memory, T::DTYPE, Op::Sum.into())
    }

    /// See [`Communicator::reduce_scatter_v`].
    pub fn reduce_scatter_v<T: Element>(
        &self,
        send: &'env [T],
        send_counts: &[usize],
        send_displs: &[usize],
        recv: &'env mut [T],
        op: impl Reduction<T>,
    ) -> Result<()> {
        let sides = [Side::each(send_counts, send_displs), Side::Own(recv.len())];
        let memory = [Region::of(send), Region::of_mut(recv)];
        self.vector(Collective::ReduceScatterV, sides, memory, T::DTYPE, erased(op))
    }

    /// See [`Communicator::gather_v`].
    pub fn gather_v<T: Element>(
        &self,
        send: &'env [T],
        recv: Option<(&'env mut [T], &[usize], &[usize])>,
        root: usize,
    ) -> Result<()> {
        let (root, (recv, side)) = (rank(root), Side::of_root(recv));
        let sides = [Side::Own(send.len()), side];
        let memory = [Region::of(send), recv.map_or(Region::empty(), Region::of_mut)];
        let collective = Collective::GatherV { root };
        self.vector(collective, sides, memory, T::DTYPE, Op::Sum.into())
    }

    /// See [`Communicator::scatter_v`].
    pub fn scatter_v<T: Element>(
        &self,
        send: Option<(&'env [T], &[usize], &[usize])>,
        recv: &'env mut [T],
        root: usize,
    ) -> Result<()> {
        let (root, (send, side)) = (rank(root), Side::of_root(send));
        let sides = [side, Side::Own(recv.len())];
        let memory = [send.map_or(Region::empty(), Region::of), Region::of_mut(recv)];
        let collective = Collective::ScatterV { root };
        self.vector(collective, sides, memory, T::DTYPE, Op::Sum.into())
    }

    /// See [`Communicator::all_to_all_v`].
    pub fn all_to_all_v<T: Element>(
        &self,
        send: &'env [T],
        send_counts: &[usize],
        send_displs: &[usize],
        recv: &'env mut [T],
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<()> {
        let sides = [
            Side::each(send_counts, send_displs),
            Side::each(recv_counts, recv_displs),
        ];
        let memory = [Region::of(send), Region::of_mut(recv)];
        self.vector(Collective::AlltoAllV, sides, memory, T::DTYPE, Op::Sum.into())
    }

    /// See [`Communicator::send`].
    pub fn send<T: Element>(&self, data: &'env [T], to: usize) -> Result<()> {
        self.send_tagged(data, to, 0)
    }

    /// See [`Communicator::send_tagged`].
    pub fn send_tagged<T: Element>(&self, data: &'env [T], to: usize, tag: i32) -> Result<()> {
        let hold = self.lender.lend(Region::of(data));
        self.begin(|start| self.comm.begin_send(hold, T::DTYPE, (to, tag), start))
            .map(|_| ())
    }

    /// See [`Communicator::recv`].
    pub fn recv<T: Element>(&self, data: &'env mut [T], from: usize) -> Result<()> {
        let wanted = Wanted::exactly(from, T::DTYPE);
        self.receive(data, wanted).map(|_| ())
    }

    /// See [`Communicator::recv_tagged`]. What came is told by the message that is returned, once the scope has ended.
    pub fn recv_tagged<T: Element>(
        &self,
        data: &'env mut [T],
        from: Option<usize>,
        tag: Option<i32>,
    ) -> Result<Message> {
        let wanted = Wanted {
            from,
            tag,
            dtype: T::DTYPE,
            exact: false,
        };
        self.receive(data, wanted).map(Message)
    }

    fn receive<T: Element>(&self, data: &'env mut [T], wanted: Wanted) -> Result<Arc<Completion>> {
        let hold = self.lender.lend(Region::of_mut(data));
        self.begin(|start| self.comm.begin_receive(hold, wanted, start))
    }

    /// A V form, on regions that hold what their blocks say.
    pub(crate) fn vector(
        &self,
        collective: Collective,
        sides: [Side<'_>; 2],
        memory: [Region<'env>; 2],
        dtype: DType,
        op: Reducing,
    ) -> Result<()> {
        let blocks = self.comm.given(collective, sides, dtype)?;
        let memory = memory.map(|region| self.lender.lend(region));
        self.begin(|start| {
            self.comm
                .begin_given(collective, blocks, memory, (dtype, op), start)
        })
        .map(|_| ())
    }

    fn apart<T: Element>(
        &self,
        collective: Collective,
        send: Option<&'env [T]>,
        recv: Option<&'env mut [T]>,
        count: usize,
        op: impl Reduction<T>,
    ) -> Result<()> {
        let memory = [send.map(Region::of), recv.map(Region::of_mut)];
        self.collective(collective, memory, (count, T::DTYPE, erased(op)))
    }

    /// Any other operation, on regions: input and output.
    pub(crate) fn collective(
        &self,
        collective: Collective,
        memory: [Option<Region<'env>>; 2],
        what: (usize, DType, Reducing),
    ) -> Result<()> {
        let memory = memory.map(|region| region.map(|region| self.lender.lend(region)));
        self.begin(|start| self.comm.begin_collective(collective, memory, what, start))
            .map(|_| ())
    }

    fn in_place<T: Element>(
        &self,
        collective: Collective,
        data: &'env mut [T],
        count: usize,
        op: impl Reduction<T>,
    ) -> Result<()> {
        let hold = self.lender.lend(Region::of_mut(data));
        let memory = self
            .comm
            .in_place(collective, hold.region().len(), (count, T::DTYPE), |at, len| {
                hold.part(at, len)
            })?;
        self.begin(|start| {
            self.comm
                .begin_collective(collective, memory, (count, T::DTYPE, erased(op)), start)
        })
        .map(|_| ())
    }

    fn begin(&self, begin: impl FnOnce(Start) -> Result<()>) -> Result<Arc<Completion>> {
        let completion = Completion::new();
        begin(Start::now(completion.clone(), false))?;
        self.begun.borrow_mut().push(completion.clone());
        Ok(completion)
    }
}
