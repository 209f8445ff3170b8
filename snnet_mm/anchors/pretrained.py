"""Loading pretrained weights into a plain ViT."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from mmengine.logging import print_log
from mmengine.runner.checkpoint import CheckpointLoader
from torch import Tensor

from .position import resize_pos_embed

if TYPE_CHECKING:
    from .plain_vit import PlainViT

# Classifiers of the official files, which no anchor has.
_CLASSIFIER = re.compile(r'^(head|head_dist|fc_norm|norm)\.')


def load_pretrained(anchor: PlainViT, checkpoint: str, prefix: str = '') -> None:
    """Load weights into an anchor, and say what was missing or left over.

    Args:
        anchor: The anchor.
        checkpoint: Path or URL of an official DeiT3 file, of a timm state dict of a
            plain ViT, or of an mm checkpoint.
        prefix: Where in the checkpoint the anchor is, such as ``'backbone.'``.

    Raises:
        ValueError: If nothing stands under the prefix, or the weights are of another
            width, depth, patch size or token grid.
    """
    loaded = CheckpointLoader.load_checkpoint(checkpoint, map_location='cpu')
    for key in ('state_dict', 'model'):
        loaded = loaded.get(key, loaded)
    where = f'{checkpoint} (config key: anchor.init_cfg)'
    if prefix and not prefix.endswith('.'):
        prefix += '.'
    weights = {
        k.removeprefix(prefix): v for k, v in loaded.items() if k.startswith(prefix)
    }
    if not weights:
        raise ValueError(
            f'no weight has prefix {prefix!r} in {where}; there are '
            f'{sorted({k.split(".")[0] for k in loaded})}'
        )
    try:
        weights = adapt_weights(weights, anchor)
    except ValueError as error:
        raise ValueError(f'{error}, in {where}') from None
    result = anchor.load_state_dict(weights, strict=False)
    for what, keys in (
        ('missing', result.missing_keys),
        ('unexpected', result.unexpected_keys),
    ):
        if keys:
            print_log(
                f'{checkpoint}: {what} keys {keys}',
                logger='current',
                level=logging.WARNING,
            )


def adapt_weights(weights: Mapping[str, Tensor], anchor: PlainViT) -> dict[str, Tensor]:
    """Rename weights of a plain ViT to ours and resize its position embedding.

    Args:
        weights: Weights in timm's or the official DeiT3 names, or in ours.
        anchor: What they are for; it is only read.

    Returns:
        Weights in our names and shapes, the classifier left out.

    Raises:
        ValueError: If they are of another width, depth, patch size or token grid.
    """
    wanted = anchor.state_dict()
    renamed = {
        re.sub(r'\.gamma_([12])$', r'.ls\1.gamma', k): v for k, v in weights.items()
    }
    adapted = {
        k: v for k, v in renamed.items() if k in wanted or not _CLASSIFIER.match(k)
    }
    depth = len({k.split('.')[1] for k in adapted if k.startswith('blocks.')})
    if depth != anchor.depth:
        raise ValueError(
            f'the weights have {depth} blocks, the anchor has {anchor.depth}'
        )
    if 'pos_embed' in adapted:
        adapted['pos_embed'] = _fit_pos_embed(adapted['pos_embed'], anchor)
    for key, value in adapted.items():
        if key in wanted and value.shape != wanted[key].shape:
            raise ValueError(
                f'{key} has shape {tuple(value.shape)}, the anchor has '
                f'{tuple(wanted[key].shape)}'
            )
    return adapted


def _fit_pos_embed(pos_embed: Tensor, anchor: PlainViT) -> Tensor:
    """Resize a position embedding to the anchor's grid; square unless equal."""
    if pos_embed.shape[1] == anchor.pos_embed.shape[1]:
        return pos_embed
    num_prefix = anchor.num_embedded_prefix
    num_patches = pos_embed.shape[1] - num_prefix
    side = math.isqrt(max(num_patches, 0))
    if side * side != num_patches or not side:
        raise ValueError(
            f'pos_embed has {pos_embed.shape[1]} entries, which is not a square of '
            f'patches with {num_prefix} prefix tokens; check cls_token and '
            'pos_embed_prefix of the anchor'
        )
    return resize_pos_embed(pos_embed, (side, side), anchor.grid, num_prefix)
