"""How networks of timm come apart into the blocks of stages: one function per family.

A family takes a few lines here; ``docs/families.md`` has a worked example.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise

from torch import nn

Grid = tuple[int, int]


@dataclass
class TakenApart:
    """A network as a stem and the blocks of its stages.

    Args:
        stem: From images ``(B, 3, H, W)`` to the map in front of block 0, which is in
            the blocks' layout, or for ``'NLC'`` in ``'NCHW'``.
        stages: The blocks of every stage, modules from one map to the next. What
            changes width and stride belongs to the first block of the stage behind it.
        layout: Of what the blocks read: ``'NCHW'``, ``'NHWC'`` or ``'NLC'``, the tokens
            of a map.
        fix_grid: Readies a block for maps of one grid, if that saves work.
        one_size: Whether the network is for images of one size only.
        widths: Behind every block, where those of a stage differ.
    """

    stem: nn.Module
    stages: list[list[nn.Module]]
    layout: str = 'NCHW'
    fix_grid: Callable[[nn.Module, Grid], None] | None = None
    one_size: bool = False
    widths: list[int] | None = None


@dataclass
class Family:
    """A family of networks.

    Args:
        take_apart: Takes a network apart.
        sized: Whether timm wants to know the size of the images.
    """

    take_apart: Callable[[nn.Module], TakenApart]
    sized: bool = False


def _swin(net: nn.Module) -> TakenApart:
    # Images of any size are padded to whole patches. Windows stay those of the size
    # that the network is built for; for another one masks are made anew.
    net.patch_embed.strict_img_size = False
    net.patch_embed.dynamic_img_pad = True
    for block in (b for stage in net.layers for b in stage.blocks):
        block.register_forward_pre_hook(_mask_by_size)
    return TakenApart(
        net.patch_embed,
        [downsampling_first(s.downsample, s.blocks) for s in net.layers],
        layout='NHWC',
        fix_grid=_fix_mask,
    )


def _mask_by_size(block: nn.Module, args: tuple) -> None:
    block.dynamic_mask = tuple(args[0].shape[1:3]) != tuple(block.input_resolution)


def _fix_mask(block: nn.Module, grid: Grid) -> None:
    """Make the attention mask of a block of Swin once for all."""
    block = getattr(block, 'block', block)
    block.dynamic_mask, block.input_resolution = False, grid
    block._init_buffers()


def _resnet(net: nn.Module) -> TakenApart:
    names = ('conv1', 'bn1', 'act1', 'maxpool')
    stem = nn.Sequential(OrderedDict((name, getattr(net, name)) for name in names))
    stages = [net.layer1, net.layer2, net.layer3, net.layer4]
    return TakenApart(stem, [list(stage) for stage in stages])


def _convnext(net: nn.Module) -> TakenApart:
    return TakenApart(
        net.stem, [downsampling_first(s.downsample, s.blocks) for s in net.stages]
    )


def _mobilenetv3(net: nn.Module) -> TakenApart:
    # Four stages as in a ResNet: what comes before the stride of 4 is the stem's.
    *_, before, a, b, c, d = (info['module'] for info in net.feature_info)
    starts = [
        int(name.split('.')[1]) + 1 if name.startswith('blocks.') else 0
        for name in (before, a, b, c, d)
    ]
    stem = OrderedDict(
        conv_stem=net.conv_stem, bn1=net.bn1, blocks=net.blocks[: starts[0]]
    )
    stages = [
        [block for group in net.blocks[begin:end] for block in group]
        for begin, end in pairwise(starts)
    ]
    widths = [_last_norm(block).num_features for stage in stages for block in stage]
    return TakenApart(nn.Sequential(stem), stages, widths=widths)


def _last_norm(block: nn.Module) -> nn.BatchNorm2d:
    return [m for m in block.modules() if isinstance(m, nn.BatchNorm2d)][-1]


def _levit(net: nn.Module) -> TakenApart:
    for module in net.modules():
        if isinstance(getattr(module, 'attention_bias_cache', None), dict):
            module.register_forward_pre_hook(_forget_bias)
    return TakenApart(
        net.stem,
        [downsampling_first(s.downsample, s.blocks) for s in net.stages],
        layout='NCHW' if net.use_conv else 'NLC',
        one_size=True,
    )


def _forget_bias(attention: nn.Module, args: tuple) -> None:
    """LeViT keeps biases in eval mode, even those of weights that have changed."""
    attention.attention_bias_cache = {}


def downsampling_first(
    downsample: nn.Module, blocks: Iterable[nn.Module]
) -> list[nn.Module]:
    """The blocks of a stage, what leads into it joined to the first."""
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
