"""Time of DDP's search for unused parameters in a step.

An iteration trains one stitch, so that DDP has to look for the parameters that took no
part (``find_unused_parameters=True``). The search walks the graph of the loss, whose
size depends on the number of blocks and not on their width: measured on 24 blocks like
DeiT3-L's but narrow, in one process over gloo, where everything takes part.
"""

from copy import deepcopy

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from snnet_mm.anchors import PlainViT

from ._common import in_turn

ARCH = dict(embed_dims=64, depth=24, num_heads=4)
SIDE, ROUNDS = 64, 99


def run() -> dict:
    dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
    try:
        return compare()
    finally:
        dist.destroy_process_group()


def compare() -> dict:
    anchor, nets = PlainViT(ARCH, img_size=SIDE), {}
    for name, search in (('searching_ms', True), ('not_searching_ms', False)):
        net = deepcopy(anchor)
        nets[name] = DistributedDataParallel(net, find_unused_parameters=search)
    images = torch.randn(1, 3, SIDE, SIDE)

    def step(name: str) -> None:
        nets[name].zero_grad()
        nets[name](images)[0].square().mean().backward()

    times = in_turn({name: lambda n=name: step(n) for name in nets}, ROUNDS)
    for a, b in zip(*(net.parameters() for net in nets.values()), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0)
    search = times['searching_ms'] - times['not_searching_ms']
    return times | dict(search_ms=search)
