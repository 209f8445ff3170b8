"""What DDP's search for unused parameters takes of a step, and what finds none.

An iteration trains one stitch, so that DDP has to look for the parameters that took no
part (``find_unused_parameters=True``). The search walks the graph of the loss, whose
size depends on the number of blocks and not on their width: measured on 24 blocks like
DeiT3-L's but narrow, in one process over gloo, where everything takes part.
"""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from snnet_mm.anchors import PlainViT

from ._common import in_turn

ARCH = dict(embed_dims=64, depth=24, num_heads=4)
SIDE, ROUNDS = 64, 99


class Loss(nn.Module):
    """The mean of an anchor's map."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.anchor = PlainViT(ARCH, img_size=SIDE)

    def forward(self, images: Tensor) -> Tensor:
        """The loss of images."""
        return self.anchor(images)[0].square().mean()


def run() -> dict:
    with tempfile.TemporaryDirectory() as folder:
        store = dist.FileStore(str(Path(folder) / 'store'), 1)
        dist.init_process_group('gloo', store=store, rank=0, world_size=1)
        try:
            return compare()
        finally:
            dist.destroy_process_group()


def compare() -> dict:
    images = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    wrapped = {
        name: DistributedDataParallel(Loss(), find_unused_parameters=search)
        for name, search in (('searching_ms', True), ('not_searching_ms', False))
    }

    def step(net: nn.Module) -> None:
        net.zero_grad(set_to_none=True)
        net(images).backward()

    runs = {name: lambda net=net: step(net) for name, net in wrapped.items()}
    times = in_turn(runs, ROUNDS)
    searching, not_searching = (net.parameters() for net in wrapped.values())
    for a, b in zip(searching, not_searching, strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=0, atol=0)
    more = times['searching_ms'] - times['not_searching_ms']
    return times | dict(search_ms=more)
