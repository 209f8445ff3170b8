"""Which anchors have tokens that correspond one by one."""

from __future__ import annotations

from .base import Anchor


def check_tokens_correspond(fast: Anchor, slow: Anchor) -> None:
    """Refuse two anchors that no stitching layer can join token by token.

    Nothing is bridged here. A stitching layer maps each token by itself: it can neither
    resample a grid of patches, nor make up a register that the other anchor lacks.

    Raises:
        ValueError: If they differ in patch size or prefix tokens.
    """
    if fast.patch_size != slow.patch_size:
        raise ValueError(
            f'anchors with patch_size {fast.patch_size} and {slow.patch_size} cannot '
            'be stitched token by token: their grids differ, and nothing resamples '
            'them; allowed are anchors of equal patch_size (config key: '
            'backbone.anchors)'
        )
    if _prefix_of(fast) != _prefix_of(slow):
        raise ValueError(
            f'anchors with num_prefix {fast.num_prefix} and {slow.num_prefix} '
            f'({_prefix_of(fast)}; {_prefix_of(slow)}) cannot be stitched token by '
            'token; choose variants of both with or without registers, or set '
            'num_registers and cls_token of a PlainViT, or reg_tokens in the '
            'model_args of a TimmAnchor, and train what is new (config key: '
            'backbone.anchors)'
        )


def _prefix_of(anchor: Anchor) -> str:
    registers = anchor.num_prefix - anchor.has_cls
    return f'{int(anchor.has_cls)} cls token and {registers} registers'
