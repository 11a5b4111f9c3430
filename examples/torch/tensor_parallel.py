"""Tensor parallel training by DTensor: the first layer is cut by columns and the second by rows, so that what is
between them never travels.

    torchrun --nproc-per-node 2 examples/torch/tensor_parallel.py [--backend gloo]
"""

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import common


def alone():
    net = common.model()
    return common.steps(net, common.sgd(net.parameters()))


def together():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    net = parallelize_module(common.model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    return common.mean(common.steps(net, common.sgd(net.parameters())))


common.compare(alone, tensor_parallel=together)
