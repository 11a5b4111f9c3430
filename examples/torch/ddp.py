"""Data parallel training by DistributedDataParallel, with small buckets, and then with gradients that travel as
bfloat16.

    torchrun --nproc-per-node 2 examples/torch/ddp.py [--backend gloo]
"""

from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel

import common


def alone():
    net = common.model()
    return common.steps(net, common.sgd(net.parameters()))


def together(hook=None):
    net = DistributedDataParallel(common.model(), bucket_cap_mb=0.02)
    if hook is not None:
        net.register_comm_hook(None, hook)
    return common.mean(common.steps(net, common.sgd(net.parameters()), common.mine))


common.compare(alone, ddp=together, ddp_bfloat16=lambda: together(bf16_compress_hook))
