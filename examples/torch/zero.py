"""Data parallel training in which each rank keeps a part of the optimizer's state (ZeRO, stage 1).

    torchrun --nproc-per-node 2 examples/torch/zero.py [--backend gloo]
"""

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import common


def alone():
    net = common.model()
    return common.steps(net, common.adam(net.parameters()))


def together():
    net = DistributedDataParallel(common.model())
    optimizer = ZeroRedundancyOptimizer(net.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    return common.mean(common.steps(net, optimizer, common.mine))


common.compare(alone, zero=together)
