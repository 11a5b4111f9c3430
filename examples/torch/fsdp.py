"""Fully sharded training: each rank keeps a part of each layer, of its gradients and of the optimizer's state.

    torchrun --nproc-per-node 2 examples/torch/fsdp.py [--backend gloo]
"""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import common


def alone():
    net = common.model()
    return common.steps(net, common.adam(net.parameters()))


def together():
    net = common.model()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in net[::2]:
        fully_shard(layer, mesh=mesh)
    fully_shard(net, mesh=mesh)
    return common.mean(common.steps(net, common.adam(net.parameters()), common.mine))


common.compare(alone, fsdp=together)
