"""Expert parallel training: each rank has an expert, and samples travel to the one that a router chooses for them, by
all_to_all_single with as many rows as there are.

    torchrun --nproc-per-node 2 examples/torch/expert_parallel.py [--backend gloo]
"""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd as exchange

import common

RANKS = int(os.environ.get("WORLD_SIZE", 1))


class Experts(nn.Module):
    """A router, and all experts; of these only `own` if it is given."""

    def __init__(self, own=None):
        super().__init__()
        torch.manual_seed(2)
        self.router = nn.Linear(common.INPUTS, RANKS)
        experts = [nn.Linear(common.INPUTS, common.CLASSES) for _ in range(RANKS)]
        self.experts = nn.ModuleList(experts if own is None else [experts[own]])

    def forward(self, inputs):
        scores = self.router(inputs).softmax(1)
        score, chosen = scores.max(1)
        answer = self.exchanged(inputs, chosen) if len(self.experts) < RANKS else self.answers(inputs, chosen)
        return answer * score[:, None]

    def answers(self, inputs, chosen):
        return torch.stack([expert(inputs) for expert in self.experts])[chosen, torch.arange(len(inputs))]

    def exchanged(self, inputs, chosen):
        order = chosen.argsort(stable=True)
        rows = torch.bincount(chosen, minlength=RANKS)
        come = torch.empty_like(rows)
        dist.all_to_all_single(come, rows)
        there, here = rows.tolist(), come.tolist()
        asked = exchange(inputs[order], here, there, dist.group.WORLD)
        back = exchange(self.experts[0](asked), there, here, dist.group.WORLD)
        return torch.empty_like(back).index_copy(0, order, back)


def alone():
    net = Experts()
    return common.steps(net, common.sgd(net.parameters()))


class WithGradients(torch.optim.SGD):
    """The router's gradients are averages over the ranks; an expert's come from the samples of all, each of a loss that
    is the mean of its rank's samples."""

    def __init__(self, net):
        super().__init__(net.parameters(), lr=0.1, momentum=0.9)
        self.net = net

    def step(self):
        for parameter in self.net.router.parameters():
            dist.all_reduce(parameter.grad)
            parameter.grad /= RANKS
        for parameter in self.net.experts.parameters():
            parameter.grad /= RANKS
        super().step()


def together():
    net = Experts(dist.get_rank())
    return common.mean(common.steps(net, WithGradients(net), common.mine))


common.compare(alone, expert_parallel=together)
