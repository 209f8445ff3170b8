"""Families of networks of timm with stages: how each is split into blocks.

A family takes a few lines here; ``docs/families.md`` has a worked example.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain, pairwise

from torch import nn

from .timm_internals import accept_any_size, fix_mask, forget_biases

Grid = tuple[int, int]


@dataclass
class NetworkParts:
    """A network as a stem and the blocks of its stages.

    Args:
        stem: From images ``(B, 3, H, W)`` to the map before block 0, which is in
            the blocks' layout, or for ``'NLC'`` in ``'NCHW'``.
        stages: The blocks of every stage, modules from one map to the next. What
            changes width and stride belongs to the first block of the stage after it.
        layout: Of what the blocks read: ``'NCHW'``, ``'NHWC'`` or ``'NLC'``, the tokens
            of a map.
        fix_grid: Readies a block for maps of one grid, if that saves work.
        one_size: Whether the network is for images of one size only.
        widths: Width after every block, where those of a stage differ.
    """

    stem: nn.Module
    stages: list[list[nn.Module]]
    layout: str = 'NCHW'
    fix_grid: Callable[[nn.Module, Grid], None] | None = None
    one_size: bool = False
    widths: list[int] | None = None


@dataclass
class Family:
    """A family of networks: how one is split into parts."""

    split: Callable[[nn.Module], NetworkParts]
    sized: bool = False  # whether timm wants to know the size of the images


def _swin(net: nn.Module) -> NetworkParts:
    accept_any_size(net)
    stages = [downsampling_first(s.downsample, s.blocks) for s in net.layers]
    return NetworkParts(net.patch_embed, stages, layout='NHWC', fix_grid=fix_mask)


def _resnet(net: nn.Module) -> NetworkParts:
    names = ('conv1', 'bn1', 'act1', 'maxpool')
    stem = nn.Sequential(OrderedDict((name, getattr(net, name)) for name in names))
    stages = [net.layer1, net.layer2, net.layer3, net.layer4]
    return NetworkParts(stem, [list(stage) for stage in stages])


def _convnext(net: nn.Module) -> NetworkParts:
    stages = [downsampling_first(s.downsample, s.blocks) for s in net.stages]
    return NetworkParts(net.stem, stages)


def _levit(net: nn.Module) -> NetworkParts:
    forget_biases(net)
    stages = [downsampling_first(s.downsample, s.blocks) for s in net.stages]
    layout = 'NCHW' if net.use_conv else 'NLC'
    return NetworkParts(net.stem, stages, layout=layout, one_size=True)


def _mobilenetv3(net: nn.Module) -> NetworkParts:
    # Four stages as in a ResNet: what comes before the stride of 4 is the stem's.
    *_, before, a, b, c, d = (info['module'] for info in net.feature_info)
    starts = [
        int(name.split('.')[1]) + 1 if name.startswith('blocks.') else 0
        for name in (before, a, b, c, d)
    ]
    first = net.blocks[: starts[0]]
    stem = OrderedDict(conv_stem=net.conv_stem, bn1=net.bn1, blocks=first)
    stages = [list(chain(*net.blocks[a:b])) for a, b in pairwise(starts)]
    norms = [
        [m for m in block.modules() if isinstance(m, nn.BatchNorm2d)][-1]
        for block in chain(*stages)
    ]
    widths = [norm.num_features for norm in norms]
    return NetworkParts(nn.Sequential(stem), stages, widths=widths)


def downsampling_first(
    downsample: nn.Module, blocks: Iterable[nn.Module]
) -> list[nn.Module]:
    """Return the blocks of a stage, what leads into it joined to the first."""
    first, *others = blocks
    if not isinstance(downsample, nn.Identity):
        first = nn.Sequential(OrderedDict(downsample=downsample, block=first))
    return [first, *others]


# By the module of timm that a family is in.
FAMILIES = {
    'convnext': Family(_convnext),
    'levit': Family(_levit, sized=True),
    'mobilenetv3': Family(_mobilenetv3),
    'resnet': Family(_resnet),
    'swin_transformer': Family(_swin, sized=True),
    'swin_transformer_v2': Family(_swin, sized=True),
}
