"""Which anchors have tokens that correspond one by one."""

from __future__ import annotations

from .base import Anchor


def check_tokens_correspond(fast: Anchor, slow: Anchor) -> None:
    """Refuse two anchors that no stitching layer can join token by token.

    A stitching layer maps each token by itself: it can neither resample a grid of
    patches, nor make up a register that the other anchor lacks. Adapters resample; see
    ``BridgedBackbone``.

    Raises:
        ValueError: If they differ in patch size, in the strides of their stages, or in
            prefix tokens.
    """
    strides = _strides_of(fast), _strides_of(slow)
    if strides[0] != strides[1]:
        plain = len(fast.stages) == len(slow.stages) == 1
        key = 'patch_size' if plain else 'strides of stages'
        a, b = (s[0] if plain else s for s in strides)
        raise ValueError(
            f'anchors with {key} {a} and {b} cannot be stitched token by token: their '
            'grids differ, and only the adapters of a BridgedBackbone resample them; '
            f'allowed are anchors of equal {key} (config keys: backbone.anchors, '
            'backbone.type)'
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


def _strides_of(anchor: Anchor) -> tuple[int, ...]:
    """Pixels between two tokens in every stage."""
    return tuple(anchor.block_strides[blocks[0]] for blocks in anchor.stages)


def _prefix_of(anchor: Anchor) -> str:
    registers = anchor.num_prefix - anchor.has_cls
    return f'{int(anchor.has_cls)} cls token and {registers} registers'
