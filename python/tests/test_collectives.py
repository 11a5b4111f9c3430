"""Every method by every type of elements, reduction and kind of view, against NumPy."""

import itertools
import unittest
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from ranks import run

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64, torch.uint64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
TYPES = [*INTEGERS, *FLOATS, *COMPLEX, torch.bool]
OPS = [
    dist.ReduceOp.SUM,
    dist.ReduceOp.AVG,
    dist.ReduceOp.PRODUCT,
    dist.ReduceOp.MIN,
    dist.ReduceOp.MAX,
    dist.ReduceOp.BAND,
    dist.ReduceOp.BOR,
    dist.ReduceOp.BXOR,
]
BITS = OPS[5:]
LENGTH = 6


def values(rank, count, dtype, seed=0):
    """Small whole numbers, so that sums and products are exact in all types."""
    numbers = (np.arange(count) * 7 + rank * 3 + seed * 5) % 4
    if dtype == torch.bool:
        return torch.tensor(numbers % 2 == 1)
    if dtype in COMPLEX:
        return torch.tensor(numbers + 1j * numbers[::-1].copy()).to(dtype)
    return torch.tensor(numbers).to(dtype)


# Each kind makes a tensor that holds the elements of `flat` in its order, in memory of its own.


def plain(flat):
    return flat.clone()


def strided(flat):
    whole = torch.zeros(flat.numel() * 2, dtype=flat.dtype)
    view = whole[::2]
    view.copy_(flat)
    return view


def shifted(flat):
    whole = torch.zeros(flat.numel() + 3, dtype=flat.dtype)
    view = whole[3:]
    view.copy_(flat)
    return view


def turned(flat):
    if flat.numel() % 2 != 0:
        return strided(flat)
    return flat.reshape(2, -1).t().contiguous().t()


def scalar(flat):
    return flat.clone().reshape(()) if flat.numel() == 1 else flat.clone()


VIEWS = [plain, strided, shifted, turned]


def wide(tensor):
    """The values in a type of NumPy's in which nothing is rounded."""
    if tensor.dtype in COMPLEX:
        return tensor.to(torch.complex128).numpy()
    if tensor.dtype == torch.bool:
        return tensor.numpy()
    return (tensor.to(torch.float64) if tensor.dtype in FLOATS else tensor.to(torch.int64)).numpy()


def reduced(op, tensors):
    dtype = tensors[0].dtype
    stack = np.stack([wide(tensor).reshape(-1) for tensor in tensors])
    if dtype == torch.bool:
        kinds = {
            dist.ReduceOp.SUM: np.logical_or,
            dist.ReduceOp.PRODUCT: np.logical_and,
            dist.ReduceOp.MIN: np.logical_and,
            dist.ReduceOp.MAX: np.logical_or,
            dist.ReduceOp.BAND: np.logical_and,
            dist.ReduceOp.BOR: np.logical_or,
            dist.ReduceOp.BXOR: np.logical_xor,
        }
        return kinds[op].reduce(stack)
    if op == dist.ReduceOp.AVG:
        total = stack.sum(0)
        return total / len(tensors) if dtype in FLOATS or dtype in COMPLEX else total // len(tensors)
    kinds = {
        dist.ReduceOp.SUM: np.add,
        dist.ReduceOp.PRODUCT: np.multiply,
        dist.ReduceOp.MIN: np.minimum,
        dist.ReduceOp.MAX: np.maximum,
        dist.ReduceOp.BAND: np.bitwise_and,
        dist.ReduceOp.BOR: np.bitwise_or,
        dist.ReduceOp.BXOR: np.bitwise_xor,
    }
    return kinds[op].reduce(stack)


def is_reduction(op, dtype):
    if dtype in COMPLEX:
        return op in (dist.ReduceOp.SUM, dist.ReduceOp.AVG)
    if dtype == torch.bool:
        return op != dist.ReduceOp.AVG
    return op not in BITS or dtype in INTEGERS


def same(got, want, what):
    got, want = wide(got).reshape(-1), np.asarray(want).reshape(-1)
    # An average of numbers below 4, in a type of 8 bits of precision or more.
    if not np.allclose(got, want, rtol=0.01, atol=0):
        raise AssertionError(f"{what}: {got} instead of {want}")


def flats(dtype, ranks, count=LENGTH, seed=0):
    return [values(rank, count, dtype, seed) for rank in range(ranks)]


def moves(rank, n, dtype, view):
    """Each method that only moves elements."""
    what = f"{dtype}, {view.__name__}"
    all_, mine = flats(dtype, n), view(values(rank, LENGTH, dtype))
    together = np.concatenate([wide(flat) for flat in all_])
    for root in range(n):
        tensor = view(values(rank, LENGTH, dtype))
        dist.broadcast(tensor, root)
        same(tensor, wide(all_[root]), f"broadcast, {what}")
        outputs = [view(torch.zeros(LENGTH, dtype=dtype)) for _ in range(n)] if rank == root else None
        dist.gather(mine, outputs, root)
        for source in range(n if rank == root else 0):
            same(outputs[source], wide(all_[source]), f"gather, {what}")
        inputs = [view(values(to, LENGTH, dtype, root)) for to in range(n)] if rank == root else None
        output = view(torch.zeros(LENGTH, dtype=dtype))
        dist.scatter(output, inputs, root)
        same(output, wide(values(rank, LENGTH, dtype, root)), f"scatter, {what}")
    outputs = [view(torch.zeros(LENGTH, dtype=dtype)) for _ in range(n)]
    dist.all_gather(outputs, mine)
    same(torch.cat([output.reshape(-1) for output in outputs]), together, f"all_gather, {what}")
    discarded = view(torch.zeros(LENGTH, dtype=dtype))
    dist.all_gather([discarded] * n, mine)
    same(discarded, wide(all_[-1]), f"all_gather into one output, {what}")
    output = view(torch.zeros(LENGTH * n, dtype=dtype))
    dist.all_gather_into_tensor(output, mine)
    same(output, together, f"all_gather_into_tensor, {what}")
    # From rank a to rank b goes what seed b says of rank a.
    inputs = [view(values(rank, LENGTH, dtype, to)) for to in range(n)]
    outputs = [view(torch.zeros(LENGTH, dtype=dtype)) for _ in range(n)]
    dist.all_to_all(outputs, inputs)
    for source in range(n):
        same(outputs[source], wide(values(source, LENGTH, dtype, rank)), f"all_to_all, {what}")
    whole = view(torch.cat([values(rank, LENGTH, dtype, to) for to in range(n)])).reshape(-1)
    output = view(torch.zeros(LENGTH * n, dtype=dtype)).reshape(-1)
    dist.all_to_all_single(output, whole)
    same(output, np.concatenate([wide(values(a, LENGTH, dtype, rank)) for a in range(n)]), f"all_to_all_single, {what}")
    received = view(torch.zeros(LENGTH, dtype=dtype))
    sent = dist.isend(mine, (rank + 1) % n, tag=3)
    dist.recv(received, (rank - 1) % n, tag=3)
    sent.wait()
    same(received, wide(all_[(rank - 1) % n]), f"send and recv, {what}")
    received = view(torch.zeros(LENGTH, dtype=dtype))
    sent = dist.isend(mine, (rank + 1) % n)
    source = dist.recv(received)
    sent.wait()
    assert source == (rank - 1) % n, f"recv from any rank names {source}, {what}"
    same(received, wide(all_[source]), f"recv from any rank, {what}")
    return 0


def reductions(rank, n, dtype, op, view):
    """Each method that reduces."""
    what = f"{dtype}, {op}, {view.__name__}"
    all_ = flats(dtype, n)
    want = reduced(op, all_)
    mine = view(values(rank, LENGTH, dtype))
    dist.all_reduce(mine, op)
    same(mine, want, f"all_reduce, {what}")
    for root in range(n):
        mine = view(values(rank, LENGTH, dtype))
        dist.reduce(mine, root, op)
        if rank == root:
            same(mine, want, f"reduce, {what}")
    blocks = [reduced(op, flats(dtype, n, seed=to)) for to in range(n)]
    inputs = [view(values(rank, LENGTH, dtype, to)) for to in range(n)]
    output = view(torch.zeros(LENGTH, dtype=dtype))
    dist.reduce_scatter(output, inputs, op)
    same(output, blocks[rank], f"reduce_scatter, {what}")
    output = view(torch.zeros(LENGTH, dtype=dtype))
    dist.reduce_scatter_tensor(output, view(torch.cat([values(rank, LENGTH, dtype, to) for to in range(n)])), op)
    same(output, blocks[rank], f"reduce_scatter_tensor, {what}")


def refused(error, part, call):
    try:
        call()
    except error as why:
        assert part in str(why), f"{why!r} does not say {part!r}"
    else:
        raise AssertionError(f"nothing was refused that should say {part!r}")


def other_reductions(rank, n, dtype):
    """What has no such reduction is refused on each rank, and the group works on."""
    for op in OPS:
        if not is_reduction(op, dtype):
            group = dist.group.WORLD
            refused((ValueError, RuntimeError), "", lambda: dist.all_reduce(values(rank, 4, dtype), op))
            options = dist.ReduceScatterOptions()
            options.reduceOp = op
            output, inputs = values(rank, 4, dtype), values(rank, 4 * n, dtype)
            refused(ValueError, "ccl", lambda: group._reduce_scatter_base(output, inputs, options))
    dist.barrier()


def every_type(rank, n):
    for dtype, view in itertools.product(TYPES, VIEWS):
        moves(rank, n, dtype, view)
        for op in OPS:
            if is_reduction(op, dtype):
                reductions(rank, n, dtype, op, view)
    for dtype in TYPES:
        other_reductions(rank, n, dtype)


def sizes(rank, n):
    """None, one without dimensions, and long ones."""
    for dtype, count in itertools.product([torch.float32, torch.int64, torch.bool], [0, 1, 100_003]):
        for view in [plain, scalar]:
            mine, all_ = view(values(rank, count, dtype)), flats(dtype, n, count)
            dist.all_reduce(mine)
            same(mine, reduced(dist.ReduceOp.SUM, all_), f"all_reduce of {count}")
            tensor = view(values(rank, count, dtype))
            dist.broadcast(tensor, n - 1)
            same(tensor, wide(all_[-1]), f"broadcast of {count}")
            outputs = [view(torch.zeros(count, dtype=dtype)) for _ in range(n)]
            dist.all_gather(outputs, view(all_[rank]))
            for output, want in zip(outputs, all_):
                same(output, wide(want), f"all_gather of {count}")
            inputs = [view(all_[rank]) for _ in range(n)]
            output = view(torch.zeros(count, dtype=dtype))
            dist.reduce_scatter(output, inputs)
            same(output, reduced(dist.ReduceOp.SUM, all_), f"reduce_scatter of {count}")
            sent = dist.isend(view(all_[rank]), (rank + 1) % n)
            dist.recv(output, (rank - 1) % n)
            sent.wait()
            same(output, wide(all_[(rank - 1) % n]), f"recv of {count}")
    stacked = torch.zeros(n, 2, 3)
    dist.all_gather_into_tensor(stacked, torch.full((2, 3), float(rank)))
    same(stacked, np.repeat(np.arange(n), 6), "all_gather_into_tensor, stacked")


def splits(rank, n):
    """From a to b go (a + 2b) % 3 rows, which may be none."""
    rows = [(rank + 2 * to) % 3 for to in range(n)]
    come = [(source + 2 * rank) % 3 for source in range(n)]
    for shape in [(), (2,)]:
        given = torch.cat([torch.full((count, *shape), 10.0 * rank + to) for to, count in enumerate(rows)])
        got = torch.full((sum(come), *shape), -1.0)
        dist.all_to_all_single(got, given, come, rows)
        want = torch.cat([torch.full((count, *shape), 10.0 * a + rank) for a, count in enumerate(come)])
        same(got, wide(want), f"all_to_all_single by rows of {shape}")
        outputs = [torch.full((count, *shape), -1.0) for count in come]
        dist.all_to_all(outputs, list(given.split(rows)))
        same(torch.cat(outputs), wide(want), f"all_to_all of unequal tensors of {shape}")
    tensor = torch.arange(float(n)) + 10 * rank
    dist.all_to_all_single(tensor, tensor)
    same(tensor, 10 * np.arange(n) + rank, "all_to_all_single in place")
    # Some ranks name equal splits, others leave them out.
    given, got = torch.arange(2.0 * n) + 100 * rank, torch.zeros(2 * n)
    named = ([2] * n, [2] * n) if rank % 2 == 0 else (None, None)
    dist.all_to_all_single(got, given, *named)
    want = [100 * source + 2 * rank + k for source in range(n) for k in range(2)]
    same(got, want, "all_to_all_single, equal splits on some ranks")
    lengths = [torch.zeros(source + 1) for source in range(n)]
    dist.all_gather(lengths, torch.full((rank + 1,), float(rank)))
    for source, output in enumerate(lengths):
        same(output, [source] * (source + 1), "all_gather of unequal tensors")


def within(rank, n):
    """An input that lies in the output, or an output in the input: at the rank's own place, at others, and across."""
    warnings.simplefilter("ignore")
    root = n - 1
    gathered, scattered = np.repeat(np.arange(n), 3), np.full(3, n * (n - 1) / 2)
    for at in (0, 1 if n > 1 else 0, 3 * rank, 3 * root):

        def make(rows=False):
            """The whole, of n rows of 3 numbers which all are this rank, and the 3 from `at`."""
            whole = torch.full((3 * n,), float(rank))
            part = whole[at : at + 3]
            return (list(whole.view(n, 3).unbind()) if rows else whole), part

        for gather in (dist.all_gather, lambda rows, part: dist.all_gather_coalesced([[row] for row in rows], [part])):
            rows, part = make(rows=True)
            gather(rows, part)
            same(torch.cat(rows), gathered, f"all_gather from {at} of its output")
        for gather in (dist.all_gather_into_tensor, _in_coalesced("allgather_into_tensor_coalesced")):
            whole, part = make()
            gather(whole, part)
            same(whole, gathered, f"all_gather_into_tensor from {at} of its output")
        rows, part = make(rows=True)
        dist.gather(part, rows if rank == root else None, root)
        if rank == root:
            same(torch.cat(rows), gathered, f"gather from {at} of its output")
        rows, part = make(rows=True)
        dist.scatter(part, rows if rank == root else None, root)
        same(part, [root] * 3, f"scatter to {at} of its input")
        for scatter in (dist.reduce_scatter_tensor, _in_coalesced("reduce_scatter_tensor_coalesced")):
            whole, part = make()
            scatter(part, whole)
            same(part, scattered, f"reduce_scatter_tensor to {at} of its input")
        rows, part = make(rows=True)
        dist.reduce_scatter(part, rows)
        same(part, scattered, f"reduce_scatter to {at} of its input")
    part = torch.full((3,), float(rank))
    dist.reduce_scatter(part, [part] * n)
    same(part, scattered, "reduce_scatter of one tensor, to itself")


def _in_coalesced(name):
    def call(output, input):
        getattr(dist.group.WORLD, name)([output], [input]).wait()

    return call


def coalesced(rank, n):
    warnings.simplefilter("ignore")
    tensors = [values(rank, count, torch.float32) for count in (3, 1, 8)]
    dist.all_reduce_coalesced(tensors)
    for tensor, count in zip(tensors, (3, 1, 8)):
        same(tensor, reduced(dist.ReduceOp.SUM, flats(torch.float32, n, count)), "all_reduce_coalesced")
    inputs = [values(rank, count, torch.int32) for count in (2, 5)]
    outputs = [[torch.zeros(count, dtype=torch.int32) for count in (2, 5)] for _ in range(n)]
    dist.all_gather_coalesced(outputs, inputs)
    for source in range(n):
        for output, count in zip(outputs[source], (2, 5)):
            same(output, wide(values(source, count, torch.int32)), "all_gather_coalesced")
    group = dist.group.WORLD
    gathered = functional.all_gather_into_tensor_coalesced([values(rank, c, torch.float32) for c in (2, 5)], group)
    for tensor, count in zip(gathered, (2, 5)):
        want = np.concatenate([wide(flat) for flat in flats(torch.float32, n, count)])
        same(tensor, want, "all_gather_into_tensor_coalesced")
    given = [values(rank, count * n, torch.float32) for count in (2, 5)]
    for op in ("sum", "avg"):
        scattered = functional.reduce_scatter_tensor_coalesced(given, op, [0, 0], group)
        kind = dist.ReduceOp.SUM if op == "sum" else dist.ReduceOp.AVG
        for tensor, count in zip(scattered, (2, 5)):
            whole = reduced(kind, flats(torch.float32, n, count * n))
            same(tensor, whole[rank * count : (rank + 1) * count], "reduce_scatter_tensor_coalesced")


def coalesced_over_each_other(rank, n):
    """What lies in one memory comes out as if each operation had memory of its own, as with Gloo."""
    warnings.simplefilter("ignore")
    length, total = 50_000, n * (n - 1) / 2
    tensor = torch.full((length,), float(rank))
    dist.all_reduce_coalesced([tensor, tensor, tensor[10:], tensor[::2]])
    same(tensor, [total] * length, "all_reduce_coalesced of one tensor four times")
    with dist._coalescing_manager():
        dist.all_reduce(tensor)
        dist.all_reduce(tensor)
    same(tensor, [total * n] * length, "a coalesced all_reduce of one tensor twice")
    group, gathered = dist.group.WORLD, np.repeat(np.arange(n), length)

    def make():
        """Two wholes; each has the other's part at another place than this rank's."""
        wholes = [torch.full((length * n,), float(rank)) for _ in range(2)]
        at = (rank + 1) % n * length
        return wholes, [whole[at : at + length] for whole in reversed(wholes)]

    wholes, parts = make()
    group.allgather_into_tensor_coalesced(wholes, parts).wait()
    for whole in wholes:
        same(whole, gathered, "all_gather_into_tensor_coalesced from each other's outputs")
    wholes, parts = make()
    dist.all_gather_coalesced([[whole.view(n, -1)[to] for whole in wholes] for to in range(n)], parts)
    for whole in wholes:
        same(whole, gathered, "all_gather_coalesced from each other's outputs")
    wholes, parts = make()
    dist.all_gather_coalesced([[wholes[0].view(n, -1)[to]] * 2 for to in range(n)], parts)
    same(wholes[0], gathered, "all_gather_coalesced into the same outputs")
    wholes, parts = make()
    group.reduce_scatter_tensor_coalesced(parts, wholes).wait()
    for part in parts:
        same(part, [total] * length, "reduce_scatter_tensor_coalesced to each other's inputs")


def sparse(rank, n):
    index = torch.tensor([[rank, n, rank], [0, 1, 0]])
    mine = torch.sparse_coo_tensor(index, torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), (n + 1, 2, 2))
    want = sum(
        torch.sparse_coo_tensor(torch.tensor([[r, n, r], [0, 1, 0]]), mine._values(), mine.shape).to_dense()
        for r in range(n)
    )
    tensor = mine.clone()
    dist.all_reduce(tensor)
    same(tensor.to_dense(), wide(want), "sparse all_reduce")
    tensor = mine.clone()
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    same(tensor.to_dense(), wide(want / n), "sparse all_reduce, averages")
    for dtype in INTEGERS[:3] + [torch.int32, torch.int64]:  # PyTorch adds up no sparse tensors of the others
        dense = torch.tensor([rank * rank + 5, 0, rank, 100], dtype=dtype) * (1 if dtype == torch.uint8 else -1)
        tensor = dense.to_sparse()
        dist.all_reduce(tensor, dist.ReduceOp.AVG)
        dist.all_reduce(dense, dist.ReduceOp.AVG)
        same(tensor.to_dense(), wide(dense), f"sparse all_reduce, averages of {dtype}")
    truths = torch.tensor([True, False]).to_sparse()
    refused(ValueError, "no average of bool", lambda: dist.all_reduce(truths, dist.ReduceOp.AVG))
    refused(ValueError, "SUM and AVG", lambda: dist.all_reduce(mine, dist.ReduceOp.MAX))
    refused(ValueError, "to_dense", lambda: _direct().broadcast([mine], dist.BroadcastOptions()))


def sparse_that_differ(rank, n):
    """All ranks refuse, before anything is written where it does not belong, and the group works on."""

    def one(shape, dense=(), row=0, dtype=torch.float32):
        return torch.sparse_coo_tensor(torch.tensor([[row]]), torch.ones((1, *dense), dtype=dtype), (*shape, *dense))

    def differ(tensor, first, last):
        refused(ValueError, f"rank 0's is {first}", lambda: dist.all_reduce(tensor))
        refused(ValueError, f"rank {n - 1}'s {last}", lambda: dist.all_reduce(tensor))
        refused(ValueError, "the sparse tensors differ", lambda: dist.all_reduce(tensor, async_op=True).wait())

    odd = rank == n - 1
    far = 10**9
    differ(one([far + 1], row=far) if odd else one([5]), "Float [5] with 1", f"Float [{far + 1}] with 1")
    differ(one([4], (3, 2) if odd else (2, 3)), "Float [4, 2, 3]", "Float [4, 3, 2]")
    whole = torch.ones(4, 2).to_sparse(2 if odd else 1)
    differ(whole, "Float [4, 2] with 1 sparse", "Float [4, 2] with 2 sparse")
    differ(one([4], dtype=torch.float64 if odd else torch.float32), "Float [4]", "Double [4]")
    outside = torch.sparse_coo_tensor(torch.tensor([[9 if odd else 0]]), torch.ones(1), (4,), check_invariants=False)
    refused(RuntimeError, "found index 9", lambda: dist.all_reduce(outside))
    tensor = one([4])
    dist.all_reduce(tensor)
    same(tensor.to_dense(), [n, 0, 0, 0], "sparse all_reduce after what was refused")


def views_of_complex(rank, n):
    tensor = torch.full((4,), complex(rank, 1)).conj()
    options = dist.BroadcastOptions()
    options.rootRank = n - 1
    _direct().broadcast([tensor], options).wait()  # PyTorch itself lets no conjugates through
    same(tensor, [complex(n - 1, -1)] * 4, "broadcast of conjugates")
    parts = torch.tensor([complex(1, rank)] * 3).imag
    dist.all_reduce(parts)
    same(parts, [n * (n - 1) / 2] * 3, "all_reduce of imaginary parts")
    leaf = torch.ones(4, requires_grad=True)
    dist.all_reduce(leaf.detach())
    leaf = torch.ones(2, 3, requires_grad=True)
    dist.broadcast(leaf.t(), 0)


def premultiplied(rank, n):
    for factor, want in [(0.5, n * 0.5), (torch.tensor(rank + 1.0), n * (n + 1) / 2)]:
        tensor = torch.ones(5)
        dist.all_reduce(tensor, dist._make_nccl_premul_sum(factor))
        same(tensor, [want] * 5, "PREMUL_SUM")
    whole = torch.ones(5, dtype=torch.int64)
    dist.all_reduce(whole, dist._make_nccl_premul_sum(3.0))
    same(whole, [3 * n] * 5, "PREMUL_SUM of integers")
    no_factors = [(0.5, "whole"), (float("nan"), "whole"), (2.0**70, "whole"), (torch.tensor(1.5), "whole")]
    no_factors.append((torch.tensor(1j), "complex"))
    for factor, why in no_factors:
        refused(ValueError, why, lambda: dist.all_reduce(whole, dist._make_nccl_premul_sum(factor)))
    parts = torch.ones(5, dtype=torch.complex64)
    refused(ValueError, "complex", lambda: dist.all_reduce(parts, dist._make_nccl_premul_sum(torch.tensor(1j))))


def objects(rank, n):
    everything = [None] * n
    dist.all_gather_object(everything, {"rank": rank, "list": list(range(rank * 50))})
    assert [thing["rank"] for thing in everything] == list(range(n))
    told = [f"from {rank}", rank]
    dist.broadcast_object_list(told, n - 1)
    assert told == [f"from {n - 1}", n - 1]
    gathered = [None] * n if rank == 0 else None
    dist.gather_object(rank, gathered, 0)
    assert rank != 0 or gathered == list(range(n))
    got = [None]
    dist.scatter_object_list(got, [f"to {to}" for to in range(n)] if rank == 0 else None, 0)
    assert got == [f"to {rank}"]


def batches(rank, n):
    given, got = torch.full((3,), float(rank)), torch.zeros(3)
    ops = [dist.P2POp(dist.irecv, got, (rank - 1) % n), dist.P2POp(dist.isend, given, (rank + 1) % n)]
    for work in dist.batch_isend_irecv(ops):
        work.wait()
    same(got, [(rank - 1) % n] * 3, "batch_isend_irecv")


def bad_input(rank, n):
    refused(ValueError, "single memory location", lambda: _as_value(lambda: dist.all_reduce(torch.zeros(1).expand(4))))
    refused(ValueError, "elements", lambda: dist.group.WORLD._allgather_base(torch.zeros(3), torch.zeros(3)).wait())
    refused(ValueError, "meta", lambda: _direct().allreduce([torch.zeros(3, device="meta")]))
    for peer in (-1, n):  # -1 is no word for any rank
        refused(ValueError, f"no rank {peer} of", lambda: dist.irecv(torch.zeros(3), group_src=peer))
        refused(ValueError, f"no rank {peer} of", lambda: dist.isend(torch.zeros(3), group_dst=peer))
    dist.barrier()


def _direct():
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def _as_value(call):
    try:
        call()
    except RuntimeError as why:
        raise ValueError(str(why))


class Collectives(unittest.TestCase):
    def test_every_method_type_reduction_and_view(self):
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                run(ranks, every_type)


def _make(body, counts):
    def test(self):
        for ranks in counts:
            with self.subTest(ranks=ranks):
                run(ranks, body)

    return test


for _body in (splits, within, coalesced, coalesced_over_each_other, sparse, views_of_complex, premultiplied, objects):
    setattr(Collectives, f"test_{_body.__name__}", _make(_body, (1, 2, 3)))
Collectives.test_sizes = _make(sizes, (2, 3))
for _body in (batches, bad_input, sparse_that_differ):
    setattr(Collectives, f"test_{_body.__name__}", _make(_body, (2, 4)))
