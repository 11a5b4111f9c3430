"""Pipeline parallel training by send and recv: each rank has some of the layers, and parts of a batch follow
each other.

    torchrun --nproc-per-node 2 examples/torch/pipeline.py [--backend gloo]
"""

import torch
import torch.distributed as dist
from torch import nn

import common

PARTS = 4


def alone():
    net = common.model()
    return common.steps(net, common.sgd(net.parameters()))


def width_before(layers, index):
    """How wide what comes into layer `index` is."""
    before = [layer.out_features for layer in layers[:index] if isinstance(layer, nn.Linear)]
    return before[-1] if before else common.INPUTS


def together():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    layers = list(common.model())
    first, last = len(layers) * rank // ranks, len(layers) * (rank + 1) // ranks
    stage = nn.Sequential(*layers[first:last])
    parameters = list(stage.parameters())
    optimizer = common.sgd(parameters) if parameters else None
    is_first, is_last = rank == 0, rank == ranks - 1
    losses = torch.zeros(common.STEPS)
    for step in range(common.STEPS):
        inputs, classes = (whole.chunk(PARTS) for whole in common.batch(step))
        stage.zero_grad()
        came, went, sent = [], [], []
        for part in range(PARTS):
            if is_first:
                into = inputs[part]
            else:
                into = torch.zeros(len(inputs[part]), width_before(layers, first))
                dist.recv(into, rank - 1, tag=part)
                into.requires_grad_()
            out = stage(into)
            if is_last:
                out = nn.functional.cross_entropy(out, classes[part]) / PARTS
                losses[step] += out.detach()
            else:
                sent.append(dist.isend(out.detach(), rank + 1, tag=part))
            came.append(into)
            went.append(out)
        for part in range(PARTS):
            gradient = None
            if not is_last:
                gradient = torch.zeros_like(went[part])
                dist.recv(gradient, rank + 1, tag=PARTS + part)
            went[part].backward(gradient)
            if not is_first:
                sent.append(dist.isend(came[part].grad, rank - 1, tag=PARTS + part))
        for work in sent:
            work.wait()
        if optimizer is not None:
            optimizer.step()
    dist.broadcast(losses, ranks - 1)
    return losses


# Each rank has a layer at least.
common.compare(alone, range(1, len(common.model()) + 1), pipeline=together)
