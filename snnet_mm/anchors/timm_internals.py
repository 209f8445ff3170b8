"""Private parts of timm that anchors rely on, each with the reason why.

Written for timm 1.0, tried with 1.0.31. If equality with timm fails after an upgrade
(tests/test_anchors/), compare timm's class named in the docstring with what is said
here; where timm does the thing by itself by now, drop the function and its call.
"""

from torch import nn


def accept_any_size(swin: nn.Module) -> None:
    """Let ``SwinTransformer`` and ``SwinTransformerV2`` take images of any size.

    timm's ``dynamic_mask`` makes masks anew for all sizes or none; those that are kept
    are exact for the size that the network is built for.
    """
    swin.patch_embed.strict_img_size = False
    swin.patch_embed.dynamic_img_pad = True
    for block in (b for stage in swin.layers for b in stage.blocks):
        block.register_forward_pre_hook(_mask_by_size)


def _mask_by_size(block: nn.Module, args: tuple) -> None:
    block.dynamic_mask = tuple(args[0].shape[1:3]) != tuple(block.input_resolution)


def fix_mask(block: nn.Module, grid: tuple[int, int]) -> None:
    """Make the attention mask of a block of Swin once for all, for traced graphs."""
    block = getattr(block, 'block', block)
    if hasattr(block, 'dynamic_mask'):  # not what merges patches
        block.dynamic_mask, block.input_resolution = False, grid
        block._init_buffers()


def forget_biases(levit: nn.Module) -> None:
    """Keep no biases in ``attention_bias_cache`` of ``Levit``: they outlive weights."""
    for module in levit.modules():
        if isinstance(getattr(module, 'attention_bias_cache', None), dict):
            module.register_forward_pre_hook(_forget)


def _forget(attention: nn.Module, args: tuple) -> None:
    attention.attention_bias_cache = {}
