"""Private parts of timm that anchors rely on, each with the reason why.

Written for timm 1.0, tested with 1.0.31. If outputs differ from timm's after an upgrade
(tests/test_anchors/), compare timm's class with the docstring that names it. If timm
then provides the behaviour itself, remove the function and its call.
"""

import torch
from torch import Tensor, nn


def accept_any_size(swin: nn.Module) -> None:
    """Let ``SwinTransformer`` and ``SwinTransformerV2`` accept images of any size.

    timm's ``dynamic_mask`` recomputes masks for all sizes or for none. Stored masks are
    exact for the native size, so only other sizes recompute them.
    """
    swin.patch_embed.strict_img_size = False
    swin.patch_embed.dynamic_img_pad = True
    for block in (b for stage in swin.layers for b in stage.blocks):
        block.register_forward_pre_hook(_mask_by_size)


def _mask_by_size(block: nn.Module, args: tuple) -> None:
    block.dynamic_mask = tuple(args[0].shape[1:3]) != tuple(block.input_resolution)


def attend_in_windows(block: nn.Module, normed: Tensor) -> Tensor:
    """Run the attention of a Swin block alone on a normalised map ``(B, H, W, C)``.

    ``SwinTransformerBlock.forward`` calls it between a norm and the residual.
    """
    _mask_by_size(block, (normed,))
    return block._attn(normed)


def rotate(attn: nn.Module, x: Tensor, rope: Tensor) -> Tensor:
    """Rotate queries or keys ``(B, heads, L, C)`` of patches, not of prefix tokens.

    ``EvaAttention`` and ``AttentionRope`` do so within their ``forward``.
    """
    from timm.layers import apply_rot_embed_cat

    number = attn.num_prefix_tokens
    half = getattr(attn, 'rotate_half', False)
    rotated = apply_rot_embed_cat(x[:, :, number:], rope, half=half)
    return torch.cat([x[:, :, :number], rotated], dim=2).type_as(x)


def fix_mask(block: nn.Module, grid: tuple[int, int]) -> None:
    """Precompute the attention mask of a block for a grid, for traced graphs."""
    block = getattr(block, 'block', block)
    # That of a Swin, no patch merging layer, and its attention was not cut away.
    if hasattr(block, 'dynamic_mask') and hasattr(block.attn, 'window_size'):
        block.dynamic_mask, block.input_resolution = False, grid
        block._init_buffers()


def forget_biases(levit: nn.Module) -> None:
    """Disable ``attention_bias_cache`` of ``Levit``, which survives weight updates."""
    for module in levit.modules():
        if isinstance(getattr(module, 'attention_bias_cache', None), dict):
            module.register_forward_pre_hook(_forget)


def _forget(attention: nn.Module, args: tuple) -> None:
    attention.attention_bias_cache = {}
