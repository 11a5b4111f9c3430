"""What the examples share: a little model, its data, and the comparison with one process that trains alone."""

import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

INPUTS, HIDDEN, CLASSES = 32, 96, 12
BATCH = 48
EQUAL_PARTS = [ranks for ranks in range(1, BATCH + 1) if BATCH % ranks == 0]
STEPS = 8
TOLERANCE = 1e-4


def model():
    """The same on all ranks."""
    torch.manual_seed(1)
    layers = [nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES)]
    return nn.Sequential(*layers)


def batch(step):
    """All samples of a step, the same on all ranks."""
    generator = torch.Generator().manual_seed(1000 + step)
    inputs = torch.randn(BATCH, INPUTS, generator=generator)
    return inputs, inputs[:, :CLASSES].argmax(1)


def mine(tensor):
    """This rank's part of what all ranks have together."""
    return tensor.chunk(dist.get_world_size())[dist.get_rank()]


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01)


def steps(net, optimizer, part=lambda tensor: tensor):
    """Trains and returns the losses of this process's part of each batch."""
    losses = []
    for step in range(STEPS):
        inputs, classes = map(part, batch(step))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(inputs), classes)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def mean(losses):
    """The losses of the whole batch."""
    dist.all_reduce(losses)
    return losses / dist.get_world_size()


def compare(alone, numbers=EQUAL_PARTS, **ways):
    """Trains alone and in each of the ways, and says how far the losses are apart; more than TOLERANCE is a failure.

    `numbers` of ranks are possible."""
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--backend", default="ccl", choices=["ccl", "gloo"])
    options = parser.parse_args()
    if int(os.environ.get("WORLD_SIZE", 1)) not in numbers:
        sys.exit(f"{os.environ['WORLD_SIZE']} ranks cannot share this: {', '.join(map(str, numbers))} can")
    if options.backend == "ccl":
        import ccl_torch  # noqa: F401: registers the backend
    torch.set_num_threads(1)
    want = alone()
    dist.init_process_group(options.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for name, together in ways.items():
        together()  # makes connections and the like
        dist.barrier()
        begun = time.perf_counter()
        got = together()
        took = (time.perf_counter() - begun) / STEPS
        apart = (got - want).abs().max().item()
        if rank == 0:
            losses = " ".join(f"{loss:.6f}" for loss in got.tolist())
            print(f"{name}: {ranks} ranks over {options.backend}, {took * 1e3:.2f} ms a step, losses {losses}")
            print(f"{name}: at most {apart:.1e} from one process alone")
        if not apart <= TOLERANCE:
            sys.exit(f"{name}: losses differ by {apart}: more than {TOLERANCE}")
    dist.destroy_process_group()
