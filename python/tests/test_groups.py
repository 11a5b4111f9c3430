"""Order, waiting, failures, and the making and ending of groups."""

import concurrent.futures
import datetime
import gc
import importlib.util
import json
import multiprocessing
import os
import pathlib
import queue
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

import ccl_torch
from ranks import PATIENCE, run

SECOND = datetime.timedelta(seconds=1)


def fails(call, *parts, error=RuntimeError):
    """What it says, which has all `parts`."""
    try:
        call()
    except error as why:
        for part in parts:
            assert part in str(why), f"{why!r} does not say {part!r}"
        return str(why)
    raise AssertionError(f"nothing failed that should say {parts}")


def raised(call):
    try:
        call()
    except Exception as why:
        return why
    return None


# Order and waiting.


def in_order(rank, n):
    tensor = torch.ones(1000)
    works = [dist.all_reduce(tensor, async_op=True) for _ in range(4)]
    dist.all_reduce(tensor)  # one that blocks comes after them
    assert all(work.is_completed() for work in works)
    assert torch.equal(tensor, torch.full((1000,), float(n**5))), tensor[0]


def returns_at_once(rank, n):
    go = pathlib.Path(os.environ["CCL_TEST_FOLDER"]) / f"go{n}"
    if rank == 0:
        tensor, other = torch.ones(70_000), torch.ones(3)
        reduced = dist.all_reduce(tensor, async_op=True)
        message = dist.irecv(other, 1)
        sent = dist.isend(torch.full((70_000,), 5.0), 1)
        assert not reduced.is_completed() and not message.is_completed() and not sent.is_completed()
        fails(lambda: reduced.wait(datetime.timedelta(milliseconds=50)), "50 ms", "goes on")
        for work in (reduced, message):
            fails(work.result, "Should call wait() before result()")
        go.touch()
        assert reduced.wait() and message.wait() and sent.wait()
        assert tensor[-1] == n and other[0] == 7
        assert reduced.result()[0] is tensor and message.result()[0] is other
    else:
        while not go.exists():
            time.sleep(0.01)
        if rank == 1:
            dist.isend(torch.full((3,), 7.0), 0)
            dist.recv(torch.zeros(70_000), 0)
        dist.all_reduce(torch.ones(70_000))
    dist.barrier()


def dropped(rank, n):
    """Tensors whose handles nobody keeps."""
    kept = []
    for i in range(20):
        tensor = torch.full((5000,), float(rank + i))
        dist.all_reduce(tensor, async_op=True)
        if i == 19:
            kept.append(tensor)
        del tensor
        dist.isend(torch.full((5000,), float(i)), (rank + 1) % n, tag=i)
    gc.collect()
    for i in reversed(range(20)):
        got = torch.zeros(5000)
        dist.recv(got, (rank - 1) % n, tag=i)
        assert torch.equal(got, torch.full((5000,), float(i)))
    dist.barrier()
    assert kept[0][0] == n * (n - 1) / 2 + 19 * n


def many_in_flight(rank, n):
    """Messages of one tag come in the order in which they were sent, to receives in theirs, though streams go round."""
    right, left = (rank + 1) % n, (rank - 1) % n
    under_way = []
    for i in range(2000):
        got = torch.zeros(4)
        under_way.append((i, got, dist.irecv(got, left), dist.isend(torch.full((4,), float(i)), right)))
        if len(under_way) > 5:
            settle(*under_way.pop(0))
    for one in under_way:
        settle(*one)
    dist.barrier()


def batches_keep_their_threads(rank, n):
    """Steps of a pipeline have the same messages in flight each time, and make no threads for them but once."""
    right, left, names = (rank + 1) % n, (rank - 1) % n, pathlib.Path("/proc/self/task")

    def is_for_callbacks(task):
        try:
            return (task / "comm").read_text() == "ccl-callbacks\n"
        except OSError:
            return False  # it has ended

    def callbacks():
        return {task.name for task in names.iterdir() if is_for_callbacks(task)}

    def step():
        parts, got = [torch.full((4,), float(i)) for i in range(20)], torch.zeros(20, 4)
        ops = [dist.P2POp(dist.irecv, got[i], left, tag=i) for i in range(20)]
        works = dist.batch_isend_irecv(ops + [dist.P2POp(dist.isend, parts[i], right, tag=i) for i in range(20)])
        threads = callbacks()
        for work in works:
            work.wait()
        assert torch.equal(got[:, 0], torch.arange(20.0))
        dist.barrier()
        return threads

    # How many are in flight at once depends on who comes first: here all receives are, and so many threads are there then.
    got = torch.zeros(60, 4)
    works = [dist.irecv(got[i], left, tag=i) for i in range(60)]
    assert len(callbacks()) >= 60
    dist.barrier()
    for i in range(60):
        dist.send(torch.full((4,), float(i)), right, tag=i)
    for work in works:
        work.wait()
    dist.barrier()
    before = callbacks()
    made = set().union(*(step() for _ in range(5))) - before
    assert not made, f"{len(made)} threads in 5 steps, beside {len(before)}"


def no_room_for_a_thread(rank, n):
    """A receive that is refused for lack of one takes no message from the next one, which may be another tensor's."""
    works, kept = [], torch.zeros(4)
    if rank == 0 and os.geteuid() == 0:
        receive = lambda: works.append(dist.irecv(torch.zeros(4), 1))  # noqa: E731
        without_threads(lambda: fails(lambda: [receive() for _ in range(99)], "thread"))
    if rank == 0:
        works.append(dist.irecv(kept, 1))
    count = torch.tensor([len(works)])
    dist.broadcast(count, 0)
    for i in range(1, count + 2):
        dist.send(torch.full((4,), float(i)), 0) if rank == 1 else None
    for work in works:
        work.wait()
    if rank == 0:
        assert kept[0] == count, f"{kept[0]} instead of {count}"
        dist.recv(kept, 1)
    dist.barrier()


def without_threads(call):
    """Does so while this process may have no more of them, which holds for others than root alone."""
    limit = resource.getrlimit(resource.RLIMIT_NPROC)
    os.setresuid(54321, 54321, 0)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, limit[1]))
    try:
        call()
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, limit)
        os.setresuid(0, 0, 0)


def settle(i, got, received, sent):
    received.wait()
    sent.wait()
    assert torch.equal(got, torch.full((4,), float(i))), f"message {i} is {got[0]}"


def futures(rank, n):
    """Callbacks run without the caller, and may wait for more."""
    tensor = torch.ones(10)
    first = dist.all_reduce(tensor, async_op=True).get_future()

    def again(future):
        (reduced,) = future.value()
        for _ in range(3):
            dist.all_reduce(reduced)
        return dist.all_reduce(reduced, async_op=True).get_future().wait()[0] / n

    chained = first.then(again)
    assert torch.equal(chained.wait(), torch.full((10,), float(n**4)))
    done = threading.Event()
    work = dist.barrier(async_op=True)
    work.get_future().add_done_callback(lambda future: done.set())
    assert done.wait(PATIENCE)
    work.wait()
    assert work.get_future().value() == []
    for _ in range(200):
        work = dist.all_reduce(torch.ones(3), async_op=True)
        future = work.get_future()
        while not work.is_completed():
            time.sleep(0)
        assert future.done()


def callbacks_of_others(rank, n):
    """Who waits runs no callback, though it may carry out the operation: it may hold a lock that the callback takes."""

    def once():
        lock, release, said = threading.Lock(), threading.Event(), queue.Queue()
        added, went_on = [], []

        def calls_back(blocks):
            def callback(future):
                ok = True
                if added:  # else the operation was over already, and this may be the caller
                    ok = blocks()
                    went_on.append(blocks)
                said.put(ok)

            return callback

        if rank != 0:
            time.sleep(0.02)
        with lock:
            tensor = torch.ones(3)
            other, work = dist.all_reduce(torch.ones(3), async_op=True), dist.all_reduce(tensor, async_op=True)
            other.get_future().add_done_callback(calls_back(lambda: release.wait(PATIENCE / 2)))
            future = work.get_future()
            future.add_done_callback(calls_back(lambda: lock.acquire(timeout=PATIENCE / 2)))
            added.append(True)
            work.wait()
            assert future.done() and future.value()[0] is tensor and tensor[0] == n
            assert not went_on, "the wait took as long as callbacks"
        release.set()
        for _ in range(2):
            assert said.get(timeout=PATIENCE / 2), "a callback waited in vain"

    for _ in range(20):
        once()
    dist.barrier()


def dropped_by_the_group(rank, n):
    """The end of a tensor of which the group had the last may call the group."""
    for i in range(4):
        array, done = np.ones(1000), threading.Event()
        weakref.finalize(array, lambda: (dist.barrier(async_op=True), done.set()))
        if rank != 0:
            time.sleep(0.05)
        work = dist.all_reduce(torch.from_numpy(array), async_op=True)
        if i % 2 == 1:
            work.get_future().add_done_callback(lambda future: None)
        del array, work
        assert done.wait(PATIENCE / 2), "the tensor has not ended"
    dist.barrier()


# Failures.


def killed_peer(rank, n):
    dist.barrier()
    if rank == n - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    begun = time.monotonic()
    fails(lambda: dist.all_reduce(torch.ones(10)), f"rank {n - 1}", error=dist.DistBackendError)
    fails(lambda: dist.all_reduce(torch.ones(10), async_op=True).wait(), f"rank {n - 1}", error=dist.DistBackendError)
    fails(lambda: dist.irecv(torch.ones(10), 0 if rank else n - 1).wait(), f"rank {n - 1}", error=dist.DistBackendError)
    future = dist.all_reduce(torch.ones(10), async_op=True).get_future()
    fails(future.wait, f"rank {n - 1}")
    assert time.monotonic() - begun < PATIENCE / 2
    os._exit(0)


def late_rank(rank, n):
    group = dist.new_group()
    dist.distributed_c10d._set_pg_timeout(SECOND, group)
    folder = pathlib.Path(os.environ["CCL_TEST_FOLDER"])
    if rank == 0:
        while len(list(folder.glob(f"late{n}.*"))) < n - 1:
            time.sleep(0.01)
    else:
        fails(lambda: dist.all_reduce(torch.ones(3), group=group), "rank 0", error=dist.DistBackendError)
        (folder / f"late{n}.{rank}").touch()
    dist.barrier()


def timeout_of_one(rank, n):
    """A timeout that is named for one operation is not that of a message under way; alone the operation has it."""

    def barrier(timeout):
        options = dist.BarrierOptions()
        options.timeout = timeout
        dist.group.WORLD.barrier(options).wait()

    def wait_for(file):
        while not file.exists():
            time.sleep(0.01)

    go, over = (pathlib.Path(os.environ["CCL_TEST_FOLDER"]) / f"timeout{n}.{what}" for what in ("go", "over"))
    tensor = torch.zeros(3)
    message = dist.irecv(tensor, 1) if rank == 0 else None
    barrier(SECOND / 2 if rank == 0 else SECOND * PATIENCE)
    if rank == 0:
        time.sleep(1)
        assert not message.is_completed()
        go.touch()
        message.wait()
        assert tensor[0] == 5
    else:
        wait_for(go)
        if rank == 1:
            dist.send(torch.full((3,), 5.0), 0)
    dist.barrier()
    if rank == 0:
        fails(lambda: barrier(SECOND / 2), "Timed out", error=dist.DistBackendError)
        over.touch()
    else:
        wait_for(over)


def mismatch(rank, n):
    group = dist.new_group()
    count = 10 if rank == 0 else 11
    fails(lambda: dist.all_reduce(torch.ones(count), group=group), "10", "11", error=dist.DistBackendError)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0] == n


def wrong_length(rank, n):
    group = dist.new_group([0, 1])
    if rank == 0:
        dist.isend(torch.ones(2), 1, group=group).wait()
    elif rank == 1:
        fails(lambda: dist.recv(torch.ones(5), 0, group=group), "sent 8 bytes", error=ValueError)
    dist.barrier()


def monitored(rank, n):
    for _ in range(3):
        dist.monitored_barrier(timeout=SECOND * 20)
    if rank == 0:
        fails(lambda: dist.monitored_barrier(timeout=SECOND), "Rank 1 failed to pass monitoredBarrier in 1000 ms")
    elif rank != 1:
        fails(lambda: dist.monitored_barrier(timeout=SECOND * 20), "Rank 1 failed")
    tensor = torch.ones(3)
    dist.all_reduce(tensor)  # the group is as good as before
    assert tensor[0] == n


def monitored_and_aborted(rank, n):
    """Who waits hears of the group's end, and without a timeout the group's counts."""
    group = dist.new_group(timeout=SECOND)
    if rank == 0:
        fails(lambda: dist.monitored_barrier(group), "Rank 1 failed to pass monitoredBarrier in 1000 ms")
    group = dist.new_group()
    if rank == n - 1:
        time.sleep(0.2)
        group._get_backend(torch.device("cpu")).abort()
    else:
        begun = time.monotonic()
        fails(lambda: dist.monitored_barrier(group), f"rank {n - 1}", error=dist.DistBackendError)
        assert time.monotonic() - begun < PATIENCE / 2
    dist.barrier()


def monitored_and_late(rank, n):
    """Only rank 0's timeout ends a barrier: the others, which come before it, wait for it as long as the group would."""
    if rank == 0:
        time.sleep(1)
        dist.monitored_barrier(timeout=SECOND * PATIENCE)
    else:
        dist.monitored_barrier(timeout=SECOND / 20)
    group = dist.new_group()
    dist.distributed_c10d._set_pg_timeout(SECOND, group)
    if rank != 0:
        fails(lambda: dist.monitored_barrier(group, timeout=SECOND / 20), "heard nothing from rank 0", "in 1000 ms")
    dist.barrier()


def monitored_again(rank, n, file):
    """A group that follows another one by the same store takes no word of the other's for its own."""
    store = dist.FileStore(file, n)
    folder = pathlib.Path(file).parent
    for attempt in range(3):
        dist.init_process_group("ccl", store=store, rank=rank, world_size=n, timeout=SECOND * PATIENCE)
        if attempt == 1 and rank == n - 1:  # once it stays away
            while len(list(folder.glob("missed.*"))) < n - 1:
                time.sleep(0.01)
        elif attempt == 1:
            waits = SECOND if rank == 0 else SECOND * PATIENCE
            fails(lambda: dist.monitored_barrier(timeout=waits), f"Rank {n - 1} failed")
            (folder / f"missed.{rank}").touch()
        else:
            if rank == 0:
                time.sleep(0.2)
                (folder / f"begun{attempt}").touch()
            dist.monitored_barrier(timeout=SECOND * PATIENCE)
            assert (folder / f"begun{attempt}").exists(), "passed before rank 0 came"
        dist.barrier()
        dist.destroy_process_group()
    left = [key for key in store.list_keys() if "monitored" in key and "verdict" not in key and "heard" not in key]
    assert not left, left


def monitored_and_over(rank, n, file):
    """Rank 0 keeps the store, and ends when its own part is over: the others have heard by then how it went."""
    port = pathlib.Path(file + ".port")
    if rank == 0:
        server = dist.TCPStore("localhost", 0, n, is_master=True, wait_for_workers=False)
        port.with_suffix(".new").write_text(str(server.port))
        port.with_suffix(".new").rename(port)
    while not port.exists():
        time.sleep(0.01)
    how = os.environ["CCL_TEST_HOW"]
    store = server if rank == 0 else dist.TCPStore("localhost", int(port.read_text()), n)

    def wait_for_others(how_many):
        """They look for the verdict seldom by then."""
        while len([key for key in store.list_keys() if "/monitored/" in key]) < how_many:
            time.sleep(0.01)
        time.sleep(0.2)

    dist.init_process_group("ccl", store=store, rank=rank, world_size=n, timeout=SECOND * PATIENCE)
    if rank == 0:
        if how != "gone":
            wait_for_others(n - 1 if how != "missing" else n - 2)
        if how == "all":
            dist.monitored_barrier()
        elif how == "missing":
            fails(lambda: dist.monitored_barrier(timeout=SECOND), f"Rank {n - 1} failed")
        os._exit(0)
    if how == "all":
        dist.monitored_barrier()
    elif how == "missing" and rank != n - 1:
        fails(dist.monitored_barrier, f"Rank {n - 1} failed", error=dist.DistBackendError)
    elif how in ("lost", "gone"):
        while how == "gone" and not isinstance(raised(store.num_keys), dist.DistNetworkError):
            time.sleep(0.01)
        store.set_timeout(SECOND)  # of a new connection's attempts
        fails(dist.monitored_barrier, "heard nothing from rank 0", "store", error=dist.DistBackendError)
    os._exit(0)


def aborted(rank, n):
    group = dist.new_group()
    over = pathlib.Path(os.environ["CCL_TEST_FOLDER"]) / f"aborted{n}"
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
        group._get_backend(torch.device("cpu")).abort()
        fails(work.wait, error=dist.DistBackendError)
        over.touch()
    else:
        while not over.exists():
            time.sleep(0.01)
        fails(lambda: dist.all_reduce(torch.ones(3), group=group), "rank 0", error=dist.DistBackendError)
    dist.barrier()


def recorded(rank, n):
    """PyTorch's flight recorder tells what has gone well from what hangs."""
    go = pathlib.Path(os.environ["CCL_TEST_FOLDER"]) / "recorded"
    torch._C._distributed_c10d._reset_fr_trace("ccl")

    def come_to(*wanted):
        """What it says of each. Who waits may be ahead of it."""
        end, told = time.monotonic() + PATIENCE / 2, None
        while told != wanted:
            assert time.monotonic() < end, f"{told} instead of {wanted}"
            trace = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(backend="ccl"))
            told = tuple(entry["state"] if entry["retired"] else "under way" for entry in trace["entries"])

    dist.all_reduce(torch.ones(3))
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    dist.recv(torch.ones(3), 1) if rank == 0 else dist.send(torch.ones(3), 0)
    over = ["completed"] * 3
    come_to(*over)
    if rank == 0:
        work = dist.all_reduce(torch.ones(3), async_op=True)
        come_to(*over, "under way")
        go.touch()
        work.wait()
    else:
        while not go.exists():
            time.sleep(0.01)
        dist.all_reduce(torch.ones(3))
    come_to(*over, "completed")


def waited_for_in_compiled_code(rank, n):
    """PyTorch keeps none of them once it was waited for."""
    with functional.allow_inflight_collective_as_graph_input_ctx():
        for is_async in (True, False):
            work = dist.all_reduce(torch.ones(1), async_op=is_async)
            if is_async:
                work.wait()
            assert torch._C._distributed_c10d._get_work_registry_size() == 0


def abort_hooks(rank, n):
    """They are called when the group has failed, before who waits hears of it; not for what leaves it as it was, nor where
    its own process ended it."""
    calls = []
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    for i in range(2):
        backend.register_abort_hook(i, lambda i=i: calls.append(i))
    backend.unregister_abort_hook(0)
    backend.register_abort_hook(-1, lambda: [backend.unregister_abort_hook(i) for i in (-1, 2)])  # while they are called
    backend.register_abort_hook(2, lambda: None)
    if rank == 1:
        dist.send(torch.ones(2), 0)
    elif rank == 0:
        fails(lambda: dist.recv(torch.ones(3), 1), "sent 8 bytes", error=ValueError)
    dist.barrier()
    assert not calls
    group = dist.new_group()
    ended = group._get_backend(torch.device("cpu"))
    ended.register_abort_hook(0, lambda: calls.append("ended"))
    if rank == n - 1:
        ended.abort()
    fails(lambda: dist.all_reduce(torch.ones(3), group=group), error=dist.DistBackendError)
    assert bool(calls) == (rank != n - 1), calls
    calls.clear()
    dist.barrier()
    group = dist.new_group()
    ended = group._get_backend(torch.device("cpu"))
    ended.register_abort_hook(0, lambda: calls.append("ended"))
    if rank == n - 1:
        ended.abort()
    else:
        fails(lambda: dist.monitored_barrier(group), error=dist.DistBackendError)
        assert calls
    calls.clear()
    dist.barrier()
    group = dist.new_group()
    closed = group._get_backend(torch.device("cpu"))
    took = []

    def shut_down():
        calls.append("closed")
        began = time.monotonic()
        closed.shutdown()  # it may use the group
        took.append(time.monotonic() - began)

    closed.register_abort_hook(0, shut_down)
    if rank == n - 1:
        closed.abort()
    else:
        fails(lambda: dist.all_reduce(torch.ones(3), group=group), error=dist.DistBackendError)
        assert calls == ["closed"], calls
        assert took[0] < 4, "it waited for itself"
    calls.clear()
    dist.barrier()
    if rank == n - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    fails(lambda: dist.all_reduce(torch.ones(3)), error=dist.DistBackendError)
    assert calls and set(calls) == {1}, calls
    calls.clear()
    fails(lambda: dist.recv(torch.ones(3), n - 1), error=dist.DistBackendError)
    assert calls and set(calls) == {1}, calls
    os._exit(0)


def missing_rank(rank, n, store):
    """All come but the last."""
    if rank == n - 1:
        return
    begin = dict(init_method=f"file://{store}", rank=rank, world_size=n, timeout=SECOND * 5)
    fails(lambda: dist.init_process_group("ccl", **begin), f"{n - 1}")


def no_rank_0(rank, n, store):
    if rank == 0:
        return
    begin = dict(init_method=f"file://{store}", rank=rank, world_size=n, timeout=SECOND * 5)
    said = fails(lambda: dist.init_process_group("ccl", **begin), "rank 0")
    assert "frame #" not in said, said


# Groups.


def held():
    return [
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
        int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4 // 1024,
    ]


def groups_come_and_go(rank, n):
    def once():
        group = dist.new_group()
        for _ in range(3):
            tensor = torch.ones(100)
            dist.all_reduce(tensor, group=group, async_op=True).wait()
            assert tensor[0] == n
        message = dist.isend(torch.ones(3), (rank + 1) % n, group=group)
        dist.recv(torch.zeros(3), (rank - 1) % n, group=group)
        message.wait()
        dist.destroy_process_group(group)

    for _ in range(5):
        once()
    before = held()
    for _ in range(30):
        once()
    end = time.monotonic() + 20
    while time.monotonic() < end and not (held()[0] <= before[0] and held()[1] <= before[1]):
        time.sleep(0.05)  # threads end a little later
    after = held()
    assert after[0] <= before[0] and after[1] <= before[1] and after[2] <= before[2] + 20, (before, after)


def subgroups(rank, n):
    odd, even = dist.new_group(list(range(1, n, 2))), dist.new_group(list(range(0, n, 2)))
    mine = odd if rank % 2 else even
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor, group=mine)
    assert tensor[0] == sum(range(rank % 2, n, 2))
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert backend.supports_splitting and backend.name() == "ccl"
    half = dist.split_group(split_ranks=[list(range(n // 2)), list(range(n // 2, n))])
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=half)
    assert tensor[0] == dist.get_world_size(half)


def merged(rank, n, file):
    """Groups that know nothing of each other become one, as by Gloo."""
    store = dist.FileStore(file + ".merged", n)
    own = dist.PrefixStore(str(rank), dist.FileStore(file, n))
    dist.init_process_group("ccl", store=own, rank=0, world_size=1, timeout=SECOND * PATIENCE)
    group = dist.group.WORLD.merge_remote_group(store, n, SECOND * PATIENCE, group_name="merged")
    assert group.size() == n
    tensor = torch.full((3,), float(group.rank() + 1))
    group.allreduce([tensor]).wait()
    assert tensor[0] == n * (n + 1) / 2
    group.shutdown()
    dist.destroy_process_group()


class Store(dist.Store):
    """A program's own, which cannot be cloned."""

    def __init__(self, file, n):
        super().__init__()
        self.inner = dist.FileStore(file, n)

    def set(self, key, value):
        self.inner.set(key, value)

    def get(self, key):
        return self.inner.get(key)

    def add(self, key, more):
        return self.inner.add(key, more)

    def check(self, keys):
        return self.inner.check(keys)

    def wait(self, keys, timeout=SECOND * PATIENCE):
        self.inner.wait(keys, timeout)


def store_in_python(rank, n, file):
    store = Store(file, n)  # PyTorch does not keep the Python side of it
    dist.init_process_group("ccl", store=store, rank=rank, world_size=n, timeout=SECOND * PATIENCE)
    for _ in range(2):
        dist.monitored_barrier()
    if rank == 0:
        fails(lambda: dist.monitored_barrier(timeout=SECOND), "Rank 1 failed")
    elif rank != 1:
        fails(dist.monitored_barrier, "Rank 1 failed")
    half = dist.split_group(split_ranks=[[0], list(range(1, n))])
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=half)
    assert tensor[0] == dist.get_world_size(half)
    dist.destroy_process_group()


class SlowStore(Store):
    """Whoever looks for a verdict there waits for a file, and sees whether rank 0 has gone by then."""

    def __init__(self, file, n):
        super().__init__(file, n)
        self.folder, self.gone = pathlib.Path(file).parent, None

    def check(self, keys):
        if any(key.endswith("/verdict") for key in keys) and self.gone is None:
            while not (self.folder / "go").exists():
                time.sleep(0.01)
            self.gone = (self.folder / "gone").exists()
        return self.inner.check(keys)


def monitored_and_missed(rank, n, file):
    """Rank 0 stays until those that came in time have heard, though one that came too late has."""
    folder = pathlib.Path(file).parent
    store = SlowStore(file, n) if rank == 2 else Store(file, n)
    dist.init_process_group("ccl", store=store, rank=rank, world_size=n, timeout=SECOND * PATIENCE)

    def wait_for(end):
        while not any("/monitored/" in key and key.endswith(end) for key in store.inner.list_keys()):
            time.sleep(0.01)

    if rank == 0:
        wait_for("/2")
        fails(lambda: dist.monitored_barrier(timeout=SECOND), "Rank 1 failed")
        (folder / "gone").touch()
    elif rank == 1:
        wait_for("/verdict")
        fails(dist.monitored_barrier, "Rank 1 failed")
        time.sleep(0.5)
        (folder / "go").touch()
    else:
        fails(dist.monitored_barrier, "Rank 1 failed")
        assert store.gone is False
    dist.destroy_process_group()


def again_by_the_same_store(rank, n, file):
    """What restarts do."""
    store = dist.FileStore(file, n)
    for attempt in range(3):
        dist.init_process_group("ccl", store=store, rank=rank, world_size=n, timeout=SECOND * PATIENCE)
        tensor = torch.full((2,), float(attempt))
        dist.all_reduce(tensor)
        assert tensor[0] == attempt * n
        dist.barrier()
        dist.destroy_process_group()


def unanswered(rank, n):
    """A receive that nobody answers holds up no end, and what came to it is never written where a tensor was."""
    group = dist.new_group(timeout=SECOND * PATIENCE * 10)
    kept = torch.zeros(4)
    late, unheard = dist.irecv(kept, (rank - 1) % n, group=group), dist.irecv(torch.zeros(4), group=group, tag=1)
    del unheard
    dist.send(torch.full((4,), 3.0), (rank + 1) % n, group=group)
    begun = time.monotonic()
    dist.destroy_process_group(group)
    assert time.monotonic() - begun < PATIENCE / 2
    late.wait()  # what is on its way comes first
    assert kept[0] == 3

    group = dist.new_group()
    dist.barrier(group)
    if rank == 0:
        work = dist.irecv(torch.zeros(4), 1, group=group)
        dist.destroy_process_group(group)
        fails(work.wait, "destroyed", error=dist.DistBackendError)
    else:
        work = dist.irecv(torch.zeros(4), 0, group=group)
        fails(work.wait, "rank 0", error=dist.DistBackendError)
    dist.barrier()


def unanswered_sends(rank, n):
    """Nor do sends that nobody answers, on both sides at once."""
    group = dist.new_group(timeout=SECOND * PATIENCE * 10)
    work = dist.isend(torch.ones(1_000_000), (rank + 1) % n, group=group)
    dist.barrier()  # else the first may end the group before another sends
    dist.destroy_process_group(group)
    fails(work.wait, error=dist.DistBackendError)
    dist.barrier()


def long_sends(rank, n):
    """A send that takes more than a moment is not cut: nobody sees how much of it has gone."""
    group = dist.new_group(timeout=SECOND * PATIENCE)
    if rank == 0:
        dist.isend(torch.ones(50_000_000), 1, group=group)
        dist.destroy_process_group(group)
    elif rank == 1:
        time.sleep(2)
        got = torch.zeros(50_000_000)
        dist.recv(got, 0, group=group)
        assert got[-1] == 1
    dist.barrier()


def sends_beside_a_collective(rank, n):
    """Sends count that end while the group waits for a collective of another thread's."""
    group = dist.new_group(timeout=SECOND * PATIENCE)
    backend = group._get_backend(torch.device("cpu"))
    if rank == 0:
        works = [dist.isend(torch.ones(count), 1, group=group, tag=count) for count in (1_000_000, 10_000_000)]
        collective = threading.Thread(target=lambda: (time.sleep(0.5), backend.barrier().wait()))
        collective.start()
        backend.shutdown()
        collective.join()
        for work in works:
            work.wait()
    elif rank == 1:
        time.sleep(7)  # for the group's patience is over then
        dist.recv(torch.zeros(1_000_000), 0, group=group, tag=1_000_000)
        dist.barrier(group)
        time.sleep(0.5)
        dist.recv(torch.zeros(10_000_000), 0, group=group, tag=10_000_000)
    dist.barrier()


def options_of_the_groups(rank, n, file):
    """The timeout in ccl's own options is the group's; those of another backend are for that one."""
    options = torch._C._distributed_c10d.Backend.Options
    begin = dict(init_method=f"file://{file}", rank=rank, world_size=n)
    dist.init_process_group("ccl", pg_options=options("ccl", timeout=SECOND * 77), **begin)

    def timeout(group):
        return group._get_backend(torch.device("cpu")).options._timeout

    assert timeout(dist.group.WORLD) == SECOND * 77
    again = dist.new_group(pg_options=dist.group.WORLD._get_backend(torch.device("cpu")).options)
    assert timeout(again) == SECOND * 77
    assert timeout(dist.new_group(timeout=SECOND * 33, pg_options=options("ccl"))) == SECOND * 33
    assert timeout(dist.new_group(timeout=SECOND * 33, pg_options=options("gloo", timeout=SECOND))) == SECOND * 33
    dist.destroy_process_group()


def threads_by_a_hash_store(rank, n):
    """Two ranks that are threads of one process."""
    store, results = dist.HashStore(), [None, None]

    def body(me):
        backend = ccl_torch._C.create(store, me, 2, SECOND * PATIENCE, "threads", [])
        tensor = torch.full((4,), me + 1.0)
        backend.allreduce([tensor], dist.AllreduceOptions()).wait()
        results[me] = tensor[0].item()
        backend.shutdown()

    threads = [threading.Thread(target=body, args=(me,)) for me in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [3.0, 3.0]


def children(rank, n):
    """A forked child that ends as Python ends leaves its parent's group alone, and uses it in vain."""
    dist.all_reduce(torch.ones(3), async_op=True).wait()
    awaited = dist.irecv(torch.ones(3), 1 - rank)
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            uses = [lambda: dist.all_reduce(torch.ones(3), async_op=asynchronous) for asynchronous in (False, True)]
            uses += [lambda: dist.send(torch.ones(3), 1 - rank), awaited.wait, dist.monitored_barrier]
            uses.append(lambda: backend.split(dist.HashStore(), [rank], backend.options))
            for use in uses:
                fails(use, "of which this one was forked")
            gc.collect()
            ccl_torch._C.leave_all()
            status = 0
        except BaseException as error:
            print(error, file=sys.stderr)
        os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    dist.send(torch.ones(3), 1 - rank)
    awaited.wait()
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0] == n


def late_and_again(rank, n, file):
    """Who comes when rank 0 has failed for lack of it is told why; ranks that meet again by the same store wait for rank 0."""
    store, folder = dist.FileStore(file, n), pathlib.Path(file).parent

    def meet(seconds):
        return ccl_torch._C.create(store, rank, n, SECOND * seconds, "late", [])

    def wait_for(what):
        while not (folder / what).exists():
            time.sleep(0.01)

    if rank == 0:
        fails(lambda: meet(1), "never came")
        (folder / "failed").touch()
        wait_for("told")
        time.sleep(0.5)
    else:
        wait_for("failed")
    if rank == n - 1:
        fails(lambda: meet(1), "rank 0 did not come within 1000 ms, or came earlier and failed", "never came")
        (folder / "told").touch()
    group = meet(PATIENCE)
    tensor = torch.ones(3)
    group.allreduce([tensor]).wait()
    assert tensor[0] == n
    assert not store.check(["ccl/failure"])
    group.shutdown()


def without_an_end(rank, n, file):
    """Groups that nobody ends go, with their threads and descriptors, when they are not used any more."""
    store = dist.FileStore(file, n)
    asynchronous = dist.AllreduceOptions()
    asynchronous.asyncOp = True

    def held():
        return [len(os.listdir(f"/proc/self/{what}")) for what in ("task", "fd")]

    def settled():
        then = None
        while (now := held()) != then:
            then = now
            time.sleep(0.3)
        return now

    def use(name):
        prefixed = dist.PrefixStore(name, store)
        backend = ccl_torch._C.create(prefixed, rank, n, datetime.timedelta(seconds=PATIENCE), name, [])
        backend.allreduce([torch.ones(3)], asynchronous).get_future().wait()  # by a thread of the group's

    keeps = ccl_torch._C.create(store, rank, n, datetime.timedelta(seconds=PATIENCE), "keeps", [])
    keeps.allreduce([torch.ones(3)]).wait()  # what ranks make when they first need it is there then
    before = settled()
    for name in "abc":
        use(name)
    gc.collect()
    end = time.monotonic() + PATIENCE / 2
    while any(now > then for now, then in zip(held(), before)):
        assert time.monotonic() < end, f"{held()} are more than {before}"
        time.sleep(0.05)
    tensor = torch.ones(3)
    keeps.allreduce([tensor]).wait()
    assert tensor[0] == n


def ends_without_destroy(rank, n, file):
    dist.init_process_group("ccl", init_method=f"file://{file}", rank=rank, world_size=n)
    if rank == 1:
        time.sleep(0.5)
    tensor = torch.full((3,), 1.0 - rank)
    dist.broadcast(tensor, 0)
    assert tensor[0] == 1


def ends_with_a_pool(rank, n, file):
    global pool
    dist.init_process_group("ccl", init_method=f"file://{file}", rank=rank, world_size=n)
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(int).result()
    dist.barrier()
    if rank == 1:
        dist.recv(torch.zeros(1), 2)
    elif rank == 2:
        time.sleep(2)
        dist.send(torch.ones(1), 1)


def checked_in_detail(rank, n):
    assert dist.get_debug_level() == dist.DebugLevel.DETAIL
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    assert tensor[0] == n
    fails(lambda: dist.all_reduce(torch.ones(3 + rank)), "mismatch")


class Groups(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        os.environ["CCL_TEST_FOLDER"] = cls.folder.name

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_a_killed_peer_is_named(self):
        for ranks in (2, 3):
            run(ranks, killed_peer, expect=[ranks - 1])

    def test_abort_hooks(self):
        if not hasattr(dist.ProcessGroup, "register_abort_hook"):
            self.skipTest("this PyTorch has no such hooks")
        run(3, abort_hooks, expect=[2])

    def test_recorded(self):
        if not hasattr(dist.ProcessGroup, "register_abort_hook"):
            self.skipTest("this PyTorch has no such hooks")
        run(2, recorded)

    def test_a_missing_rank_is_named(self):
        run(3, missing_rank, init=False)
        run(3, no_rank_0, init=False)

    def test_monitored_barriers_by_the_same_store(self):
        run(3, monitored_again, init=False)

    def test_monitored_barriers_after_which_rank_0_ends(self):
        for how in ("all", "missing", "lost", "gone"):
            with self.subTest(how):
                run(3, monitored_and_over, init=False, env=dict(CCL_TEST_HOW=how))

    def test_monitored_barriers_that_one_misses(self):
        run(3, monitored_and_missed, init=False)

    def test_a_late_rank_is_told_why_rank_0_failed(self):
        run(3, late_and_again, init=False)

    def test_without_an_end(self):
        run(2, without_an_end, init=False)

    def test_processes_of_multiprocessing_leave_in_order(self):
        forks = multiprocessing.get_context("fork")
        for body, n in ((ends_without_destroy, 2), (ends_with_a_pool, 3)):
            with tempfile.TemporaryDirectory() as folder:
                ranks = [forks.Process(target=body, args=(rank, n, f"{folder}/store")) for rank in range(n)]
                for process in ranks:
                    process.start()
                for process in ranks:
                    process.join(PATIENCE)
                    self.assertEqual(process.exitcode, 0)

    def test_late_imports_in_what_a_spawned_process_forks(self):
        here = str(pathlib.Path(__file__).parent)
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "late.py"
            script.write_text(LATE_IMPORT)
            words = [sys.executable, str(script), f"{folder}/store"]
            done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, PYTHONPATH=here))
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_options_of_the_groups(self):
        run(2, options_of_the_groups, init=False)

    def test_merged_groups(self):
        run(3, merged, init=False)

    def test_a_store_in_python(self):
        run(3, store_in_python, init=False)

    def test_restarts_by_the_same_store(self):
        run(3, again_by_the_same_store, init=False)


def _make(body, counts):
    def test(self):
        for ranks in counts:
            run(ranks, body)

    return test


for _body in (in_order, returns_at_once, dropped, many_in_flight, futures, late_rank, timeout_of_one):
    setattr(Groups, f"test_{_body.__name__}", _make(_body, (2, 3)))
for _body in (callbacks_of_others, dropped_by_the_group):
    setattr(Groups, f"test_{_body.__name__}", _make(_body, (2, 3)))
for _body in (mismatch, wrong_length, monitored, monitored_and_aborted, monitored_and_late, aborted, unanswered):
    setattr(Groups, f"test_{_body.__name__}", _make(_body, (2, 3)))
Groups.test_unanswered_sends = _make(unanswered_sends, (2, 3))
Groups.test_long_sends = _make(long_sends, (2,))
Groups.test_sends_beside_a_collective = _make(sends_beside_a_collective, (2,))
for _body in (waited_for_in_compiled_code, groups_come_and_go, threads_by_a_hash_store, children, batches_keep_their_threads):
    setattr(Groups, f"test_{_body.__name__}", _make(_body, (2,)))
Groups.test_no_room_for_a_thread = _make(no_room_for_a_thread, (2,))
Groups.test_subgroups = _make(subgroups, (4,))


class Programs(unittest.TestCase):
    """Whole programs: how they end, and what an import says."""

    def program(self, text, ranks=2, before="", **env):
        here = pathlib.Path(__file__).parent
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "program.py"
            script.write_text(
                f"{before}import sys, torch, torch.distributed as dist, ccl_torch\n"
                f"sys.path.insert(0, {str(here)!r})\n"
                f"rank, n, store = int(sys.argv[1]), {ranks}, 'file://{folder}/store'\n"
                "dist.init_process_group('ccl', init_method=store, rank=rank, world_size=n)\n" + text
            )
            environment = dict(os.environ, **env)
            started = [
                subprocess.Popen([sys.executable, str(script), str(rank)], env=environment, text=True, **PIPES)
                for rank in range(ranks)
            ]
            for process in started:
                out, err = process.communicate(timeout=PATIENCE)
                self.assertEqual((process.returncode, out), (0, ""), err)
                self.assertNotIn("terminate", err)

    def test_pytorch_finds_the_backend_without_an_import(self):
        if not hasattr(dist.Backend, "_ensure_backend_registered"):
            self.skipTest("this PyTorch looks for no backends")
        code = "import sys, torch.distributed as dist\n"
        code += "dist.init_process_group('ccl', init_method=f'file://{sys.argv[1]}/store', rank=0, world_size=1)\n"
        code += "dist.barrier(); print(dist.get_backend(), 'ccl_torch' in sys.modules)"
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([sys.executable, "-c", code, folder], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout), (0, "ccl True\n"), done.stderr)

    def test_an_end_without_destroy_is_clean(self):
        self.program("tensor = torch.ones(4); dist.all_reduce(tensor); dist.all_reduce(tensor, async_op=True).wait()\n")

    def test_an_end_with_operations_under_way_is_clean(self):
        self.program(
            "if rank == 0:\n"
            "    work = dist.irecv(torch.ones(4), 1); late = dist.all_reduce(torch.ones(4), async_op=True)\n"
            "    late.get_future().then(lambda future: 1)\n"
        )

    def test_an_end_with_messages_under_way_leaves_others_their_broadcast(self):
        for message in ("dist.irecv(torch.ones(4), 1)", "dist.isend(torch.ones(1_000_000), 1, tag=9)"):
            self.program(
                "import time\n"
                f"if rank == 0: work = {message}\n"
                "dist.barrier()\n"
                "if rank == 1: time.sleep(0.3)\n"
                "dist.broadcast(torch.ones(4), 0)\n"
            )

    def test_an_end_while_daemon_threads_wait_is_clean(self):
        self.program(
            "import threading, time\n"
            "tensor = torch.ones(2)\n"
            "uses = [dist.all_reduce, lambda tensor: dist.all_reduce(tensor, async_op=True).wait(), dist.recv]\n"
            "uses += [lambda tensor: dist.monitored_barrier(), lambda tensor: dist.destroy_process_group()]\n"
            "for use in uses if rank == 0 else []:\n"
            "    threading.Thread(target=use, args=(tensor,), daemon=True).start()\n"
            "time.sleep(0.5 + rank)\n"
        )
        # A handler that comes after may wait for such threads.
        self.program(
            "import threading, test_groups\n"
            "receive = lambda: test_groups.fails(lambda: dist.recv(torch.ones(2)))\n"
            "if rank == 0: threads.append(threading.Thread(target=receive, daemon=True)); threads[0].start()\n",
            before="import atexit; threads = []; atexit.register(lambda: [thread.join() for thread in threads])\n",
        )
        # One whose new group fails while the last handler has Python's lock, up to its end.
        self.program(
            "import test_groups, threading, time\n"
            "new = dist.FileStore(store[7:] + '.new', n)\n"
            "meet = lambda: ccl_torch._C.create(new, 0, n, test_groups.SECOND, 'new', [])\n"
            "if rank == 0: threading.Thread(target=meet, daemon=True).start(); time.sleep(0.2)\n",
            before="import atexit, ctypes; atexit.register(ctypes.PyDLL(None).sleep, 2)\n",
        )
        # Who ends the process goes on where it has waited.
        self.program(
            "import atexit, test_groups\n"
            "atexit.unregister(ccl_torch._C.leave_all)\n"
            "atexit.register(lambda: test_groups.fails(lambda: dist.all_reduce(torch.ones(2))))\n"
            "atexit.register(ccl_torch._C.leave_all)\n"
        )

    def test_debug_level_detail(self):
        self.program(
            "import test_groups; test_groups.checked_in_detail(rank, n)\n", TORCH_DISTRIBUTED_DEBUG="DETAIL"
        )

    def test_torchrun_starts_again_what_was_killed(self):
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3"]
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder) / "elastic.py"
            script.write_text(ELASTIC)
            done = subprocess.run(
                [*words, "--max-restarts", "2", "--monitor-interval", "0.1", str(script)],
                capture_output=True,
                text=True,
                timeout=2 * PATIENCE,
            )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count("all came again"), 3, done.stdout)

    def imported(self, *before, **env):
        words = [sys.executable, "-c", ";".join(["import torch", *before, "import ccl_torch"])]
        done = subprocess.run(words, capture_output=True, text=True, env=dict(os.environ, **env))
        self.assertNotEqual(done.returncode, 0)
        return done.stderr

    def test_another_pytorch_is_refused(self):
        self.assertIn("pip install --force-reinstall", self.imported("torch.__version__ = '1.0.0'"))

    def test_another_backend_of_the_name_is_named(self):
        other = "import torch.distributed as dist; dist.Backend.register_backend('ccl', print, devices=['cpu'])"
        self.assertIn("ImportError: the name ccl is that of a backend of builtins", self.imported(other))

    def test_a_library_that_is_not_there_is_refused(self):
        self.assertIn("ImportError: ccl_torch finds no", self.imported(CCL_LIBRARY="/nowhere/libccl.so"))
        other = importlib.util.find_spec("torch._C").origin
        self.assertIn("Set CCL_LIBRARY", self.imported(CCL_LIBRARY=other))


LATE_IMPORT = """
import multiprocessing, sys

def forked(rank, store):
    import ccl_torch, test_groups
    test_groups.ends_without_destroy(rank, 2, store)

def spawned(store):
    # By a context's own method, and by that of all.
    method = multiprocessing.get_start_method()
    multiprocessing.set_start_method("fork", force=True)
    own = multiprocessing.get_context("fork").Process(target=forked, args=(0, store))
    ranks = [own, multiprocessing.Process(target=forked, args=(1, store))]
    run(ranks)
    multiprocessing.set_start_method(method, force=True)
    import ccl_torch
    assert ccl_torch._is_spawned()

def run(processes):
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert not any(process.exitcode for process in processes), processes

if __name__ == "__main__":
    own = multiprocessing.get_context("spawn").Process(target=spawned, args=(sys.argv[1] + ".own",))
    multiprocessing.set_start_method("spawn")
    run([own, multiprocessing.Process(target=spawned, args=(sys.argv[1],))])
"""
ELASTIC = """
import os, signal, torch, torch.distributed as dist, ccl_torch
dist.init_process_group("ccl")
rank = dist.get_rank()
tensor = torch.full((3,), float(rank))
dist.all_reduce(tensor)
assert tensor[0] == 3
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(tensor)
    raise SystemExit("rank 1 is dead")
print("all came again")
dist.destroy_process_group()
"""
PIPES = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
