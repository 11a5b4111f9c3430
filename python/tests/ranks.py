"""Ranks for tests: processes forked from one that has imported PyTorch already, which takes longer than most tests."""

import datetime
import os
import pathlib
import pickle
import signal
import tempfile
import time
import traceback

import torch
import torch.distributed as dist

import ccl_torch  # noqa: F401: registers the backend

#: How long anything may take on a slow and busy machine.
PATIENCE = 120.0


class Failed(AssertionError):
    """What went wrong, on each rank where something did."""


def run(ranks, body, *arguments, backend="ccl", timeout=PATIENCE, init=True, env=None, expect=()):
    """Runs body(rank, ranks, *arguments) in as many processes, in a group of all, and returns what it returned on each.

    `expect` names ranks that may die. With init=False the body gets the store's file as its last argument instead.
    """
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        children = [_fork(folder, rank, ranks, body, arguments, backend, timeout, init, env) for rank in range(ranks)]
        end = time.monotonic() + PATIENCE
        statuses = [_status(child, end) for child in children]
        said = [folder / f"rank{rank}" for rank in range(ranks)]
        outcomes = [pickle.loads(file.read_bytes()) if file.exists() else None for file in said]
    wrong = []
    for rank, (status, outcome) in enumerate(zip(statuses, outcomes)):
        if outcome is not None and outcome[0] == "failed":
            wrong.append(f"rank {rank} of {ranks}: {outcome[1]}")
        elif status != 0 and rank not in expect:
            wrong.append(f"rank {rank} of {ranks} ended with status {status}")
    if wrong:
        raise Failed("\n".join(wrong))
    return [outcome and outcome[1] for outcome in outcomes]


def _fork(folder, rank, ranks, body, arguments, backend, timeout, init, env):
    child = os.fork()
    if child != 0:
        return child
    status = 1
    try:
        os.environ.update(env or {})
        torch.set_num_threads(1)
        store = str(folder / "store")
        if init:
            group = dict(init_method=f"file://{store}", rank=rank, world_size=ranks)
            dist.init_process_group(backend, timeout=datetime.timedelta(seconds=timeout), **group)
            outcome = ("returned", body(rank, ranks, *arguments))
            dist.destroy_process_group()
        else:
            outcome = ("returned", body(rank, ranks, *arguments, store))
        status = 0
    except BaseException:
        outcome = ("failed", traceback.format_exc())
    (folder / f"rank{rank}").write_bytes(pickle.dumps(outcome))
    os._exit(status)


def _status(child, end):
    while time.monotonic() < end:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid != 0:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return "none: it did not end in time"
