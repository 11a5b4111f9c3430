"""Training as DataParallel does it: rank 0 has the model, hands out parameters and samples, and gathers
answers and gradients.

    torchrun --nproc-per-node 2 examples/torch/data_parallel_gather.py [--backend gloo]
"""

import torch
import torch.distributed as dist
from torch import nn

import common


def alone():
    net = common.model()
    return common.steps(net, common.sgd(net.parameters()))


def together():
    rank, ranks = dist.get_rank(), dist.get_world_size()
    net = common.model()
    optimizer = common.sgd(net.parameters())
    rows, losses = common.BATCH // ranks, torch.zeros(common.STEPS)
    for step in range(common.STEPS):
        inputs, classes = common.batch(step)
        for parameter in net.parameters():
            dist.broadcast(parameter.detach(), 0)
        part = torch.empty(rows, common.INPUTS)
        dist.scatter(part, list(inputs.chunk(ranks)) if rank == 0 else None, 0)
        net.zero_grad()
        answer = net(part)
        answers = [torch.empty(rows, common.CLASSES) for _ in range(ranks)] if rank == 0 else None
        dist.gather(answer.detach(), answers, 0)
        gradients = None
        if rank == 0:
            whole = torch.cat(answers).requires_grad_()
            loss = nn.functional.cross_entropy(whole, classes)
            loss.backward()
            losses[step] = loss.detach()
            gradients = list(whole.grad.chunk(ranks))
        gradient = torch.empty(rows, common.CLASSES)
        dist.scatter(gradient, gradients, 0)
        answer.backward(gradient)
        for parameter in net.parameters():
            dist.reduce(parameter.grad, 0)
        if rank == 0:
            optimizer.step()
    dist.broadcast(losses, 0)
    return losses


common.compare(alone, data_parallel_gather=together)
