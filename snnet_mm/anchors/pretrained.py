"""Loading pretrained weights into a plain ViT."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import torch
from mmengine.logging import print_log
from torch import Tensor

from snnet_mm.utils.checkpoint import load_url, load_weights_only
from snnet_mm.utils.licences import log_file_licence
from snnet_mm.utils.timm_models import create_timm_model

from .checkpoint_filters import to_our_names
from .fit_positions import fit_bias_tables, fit_offsets, fit_pos_embed
from .position import grid_of

if TYPE_CHECKING:
    from .plain_vit import PlainViT

# Where files keep their state dict; BEiT's have one inside another.
_STATE_DICTS = ('state_dict', 'model', 'module')
_CONFIG_KEYS = {
    'width': 'arch.embed_dims',
    'depth': 'arch.depth',
    'mlp ratio': 'arch.mlp_ratio',
    'patch size': 'patch_size',
    'number of image channels': 'in_channels',
}


def pretrained_source(init_cfg: Mapping | None, *options: str) -> dict | None:
    """What an ``init_cfg`` says to load, or None if it is not of type Pretrained.

    Args:
        init_cfg: mmengine's initialisation config.
        options: Keys that it may have besides ``type`` and ``checkpoint``.

    Raises:
        ValueError: If it has no checkpoint, or other keys.
    """
    if init_cfg is None or init_cfg['type'] != 'Pretrained':
        return None
    source = {k: v for k, v in init_cfg.items() if k != 'type'}
    if not {'checkpoint'} <= set(source) <= {'checkpoint', *options}:
        raise ValueError(
            f'init_cfg of type Pretrained with the keys {sorted(source)}; wanted is '
            f'checkpoint, allowed are {options} (config key: init_cfg)'
        )
    return source


def load_pretrained(
    anchor: PlainViT,
    checkpoint: str,
    prefix: str = '',
    img_size: int | Sequence[int] | None = None,
) -> None:
    """Load weights into an anchor, and log by name what was missing or left over.

    Args:
        anchor: The anchor.
        checkpoint: ``'timm://<name>'``, or path or http address of an official file of
            DeiT3, MAE, AugReg, BEiTv2 or DINOv2, of a timm state dict, or of an mm
            checkpoint. Files are read without running code in them.
        prefix: Where in the checkpoint the anchor is, such as ``'backbone.'``.
        img_size: Pixels, or height and width, that the checkpoint's position embedding
            is for; needed only where it is not square and not the anchor's.

    Raises:
        ValueError: If the file is missing, damaged or refused, nothing in it is a plain
            ViT, or the weights are of another width, depth, patch size or token grid.
        ImportError: If ``timm://`` is asked for without timm.
    """
    try:
        loaded = read_weights(checkpoint)
    except ValueError as error:
        raise ValueError(f'{error} (config key: init_cfg.checkpoint)') from error
    try:
        weights = adapt_weights(select_prefix(loaded, prefix), anchor, img_size)
    except ValueError as error:
        raise ValueError(
            f'checkpoint {checkpoint} (config key: init_cfg.checkpoint) does not fit: '
            f'{error}'
        ) from error
    result = anchor.load_state_dict(weights, strict=False)
    # Low-rank updates start from nothing.
    missing = [k for k in result.missing_keys if '.lora_' not in k]
    log_keys(checkpoint, 'missing', missing)
    log_keys(checkpoint, 'unexpected', result.unexpected_keys)
    log_file_licence(checkpoint)


def read_weights(checkpoint: str) -> dict[str, Tensor]:
    """The state dict of a file, an http address or a timm model.

    Raises:
        ValueError: If it cannot be had or holds no weights.
        ImportError: If it takes timm, which is missing.
    """
    scheme, separator, name = checkpoint.partition('://')
    if not separator:
        loaded = load_weights_only(checkpoint)
    elif scheme in ('http', 'https'):
        loaded = load_url(checkpoint)
    elif scheme == 'timm':
        loaded = create_timm_model(name, pretrained=True).state_dict()
    else:
        raise ValueError(
            f'checkpoint {checkpoint} has the scheme {scheme}://; allowed are timm://, '
            'http://, https:// and paths of files'
        )
    for key in _STATE_DICTS:
        inner = loaded.get(key)
        loaded = inner if isinstance(inner, Mapping) else loaded
    weights = {k: v for k, v in loaded.items() if isinstance(v, Tensor)}
    if not weights:
        raise ValueError(
            f'checkpoint {checkpoint} holds no weights, neither at its top nor under '
            f'{_STATE_DICTS}; there are {list(loaded)[:5]}'
        )
    return weights


def select_prefix(weights: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The weights under a prefix, without it.

    Raises:
        ValueError: If there are none.
    """
    if prefix and not prefix.endswith('.'):
        prefix += '.'
    selected = {
        k.removeprefix(prefix): v for k, v in weights.items() if k.startswith(prefix)
    }
    if not selected:
        raise ValueError(
            f'no weight has prefix {prefix!r}; there are '
            f'{sorted({k.split(".")[0] for k in weights})} (config key: '
            'init_cfg.prefix)'
        )
    return selected


def adapt_weights(
    weights: Mapping[str, Tensor],
    anchor: PlainViT,
    img_size: int | Sequence[int] | None = None,
) -> dict[str, Tensor]:
    """Rename weights of a plain ViT to ours and fit what depends on the grid.

    Args:
        weights: Weights in the names of any family of
            :mod:`snnet_mm.anchors.checkpoint_filters`.
        anchor: What they are for; it is only read.
        img_size: Pixels that their position embedding is for, if it is not square.

    Returns:
        Weights in our names and shapes, the classifier left out.

    Raises:
        ValueError: If they are no plain ViT's, or of another width, depth, patch size
            or token grid.
    """
    wanted = anchor.state_dict()
    adapted = to_our_names(weights)
    _check_plain_vit(adapted, weights)
    _check_low_rank(adapted, wanted)
    _check_sizes(adapted, wanted)
    if 'norm.weight' not in wanted:
        # The classifier's norm; an anchor with final_norm takes it as its own.
        adapted = {k: v for k, v in adapted.items() if not k.startswith('norm.')}
    grid = None if img_size is None else grid_of(img_size, anchor.patch_size)
    has_tables = any(k.endswith('.rel_pos_bias.table') for k in adapted)
    if 'pos_embed' in wanted and 'pos_embed' in adapted:
        adapted = fit_pos_embed(adapted, anchor.grid, anchor.num_embedded_prefix, grid)
    elif 'pos_embed' in wanted and has_tables:
        # BEiT has no absolute positions: exact, where random ones would disturb it.
        adapted['pos_embed'] = torch.zeros_like(wanted['pos_embed'])
    if has_tables and any(k.endswith('.rel_pos_bias.table') for k in wanted):
        adapted = fit_bias_tables(adapted, anchor.grid, anchor.num_prefix, grid)
    adapted = fit_offsets(adapted, wanted)
    _check_shapes(adapted, wanted)
    return adapted


def _check_plain_vit(weights: Mapping[str, Tensor], as_given: Mapping) -> None:
    if {'patch_embed.proj.weight', 'blocks.0.norm1.weight'} <= weights.keys():
        return
    found = [re.fullmatch(r'(.+\.)patch_embed\.proj\w*\.weight', k) for k in as_given]
    prefixes = sorted({m[1] for m in found if m})
    if prefixes:
        raise ValueError(
            'it holds no plain ViT at its top; allowed prefixes are '
            f'{prefixes} (config key: init_cfg.prefix)'
        )
    raise ValueError(
        'it holds no plain ViT, which has patch_embed.proj and blocks; its keys are '
        f'{", ".join(list(as_given)[:4])}, ...'
    )


def _check_sizes(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    theirs, ours = _sizes(weights), _sizes(wanted)
    for name, key in _CONFIG_KEYS.items():
        if theirs[name] != ours[name]:
            raise ValueError(
                f'its {name} is {theirs[name]}, that of the anchor is {ours[name]} '
                f'(config key: {key})'
            )


def _check_low_rank(
    weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]
) -> None:
    lost = [k for k in weights if '.lora_' in k and k not in wanted]
    if lost:
        raise ValueError(
            f'it holds low-rank updates such as {lost[0]}, without which its weights '
            'are not what was trained; the anchor has none there (config key: lora)'
        )


def _sizes(weights: Mapping[str, Tensor]) -> dict[str, float | None]:
    """What a plain ViT's weights say about it; None where they say nothing."""
    patch = weights['patch_embed.proj.weight']
    width, channels, _, side = (*patch.shape, None, None, None)[:4]
    hidden = weights.get('blocks.0.mlp.fc1.weight')
    numbers = [int(m[1]) for k in weights if (m := re.match(r'blocks\.(\d+)\.', k))]
    return {
        'width': width,
        'depth': max(numbers) + 1,
        'mlp ratio': None if hidden is None else len(hidden) / width,
        'patch size': side,
        'number of image channels': channels,
    }


def _check_shapes(weights: Mapping[str, Tensor], wanted: Mapping[str, Tensor]) -> None:
    for key, value in weights.items():
        if key in wanted and value.shape != wanted[key].shape:
            raise ValueError(
                f'{key} has shape {tuple(value.shape)}, that of the anchor has '
                f'{tuple(wanted[key].shape)} (config key: arch)'
            )


def log_keys(checkpoint: str, what: str, keys: Sequence[str]) -> None:
    """Say by name which keys of a checkpoint are missing or left over."""
    if keys:
        print_log(
            f'{checkpoint}: {what} keys {list(keys)}',
            logger='current',
            level=logging.WARNING,
        )
