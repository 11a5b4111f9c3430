"""The examples: each compares its losses with those of one process alone, and fails if they differ."""

import contextlib
import io
import os
import pathlib
import runpy
import socket
import subprocess
import sys
import unittest

# What the examples import, before their ranks are forked.
import torch.distributed.algorithms.ddp_comm_hooks.default_hooks  # noqa: F401
import torch.distributed.fsdp  # noqa: F401
import torch.distributed.optim  # noqa: F401
import torch.distributed.tensor.parallel  # noqa: F401

from ranks import PATIENCE, run

EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples" / "torch"


def example(rank, ranks, name, port, store):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.path.insert(0, str(EXAMPLES))
    sys.argv = [name]
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    return told.getvalue()


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Examples(unittest.TestCase):
    def test_torchrun_starts_one(self):
        words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        done = subprocess.run(
            [*words, str(EXAMPLES / "ddp.py")], capture_output=True, text=True, timeout=2 * PATIENCE
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("ddp: 2 ranks over ccl", done.stdout)

    def test_numbers_of_ranks_that_cannot_be_are_refused(self):
        for name, ranks, numbers in [("ddp", 5, "1, 2, 3, 4, 6, 8, 12, 16, 24, 48"), ("pipeline", 8, "1, 2, 3, 4, 5")]:
            words = [sys.executable, str(EXAMPLES / f"{name}.py")]
            environment = dict(os.environ, RANK="0", WORLD_SIZE=str(ranks))
            done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual((done.returncode, done.stderr), (1, f"{ranks} ranks cannot share this: {numbers} can\n"))


def _make(name):
    def test(self):
        for ranks in (2, 3, 4):
            with self.subTest(ranks=ranks):
                (told, *_) = run(ranks, example, name, free_port(), init=False)
                self.assertIn(f"{ranks} ranks over ccl", told)

    return test


for _path in sorted(EXAMPLES.glob("*.py")):
    if _path.stem != "common":
        setattr(Examples, f"test_{_path.stem}", _make(_path.name))
