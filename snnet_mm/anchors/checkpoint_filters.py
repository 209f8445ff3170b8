"""Published weights of plain ViTs, in our key names.

Every function takes a state dict and returns a new one. None of them reads an anchor:
what depends on its geometry is in :mod:`snnet_mm.anchors.pretrained`. MAE, AugReg and
timm's DINOv2 have our names already; ``docs/anchors.md`` lists the arguments of the
anchor that each family needs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]

# Classifiers, decoders of the pretraining and what follows from the grid.
_LEFT_OUT = re.compile(
    r'^(head|head_dist|lm_head|fc_norm|pre_logits)\.'
    r'|^mask_token$|^decoder_(embed|pos_embed|blocks|norm|pred)(\.|$)'
    r'|relative_position_index$'
)
_LAYER_SCALE = ((r'\.gamma_([12])$', r'.ls\1.gamma'),)
_DINOV2 = ((r'^register_tokens$', 'reg_token'),)
_DISTILLED = ((r'^dist_token$', 'reg_token'),)
_MMPRETRAIN = (
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^ln1\.', 'norm.'),
    (r'^layers\.', 'blocks.'),
    (r'\.ln([12])\.', r'.norm\1.'),
    (r'\.(?:attn|ffn)\.gamma([12])\.weight$', r'.ls\1.gamma'),
    (r'\.ffn\.layers\.0\.0\.', '.mlp.fc1.'),
    (r'\.ffn\.layers\.1\.', '.mlp.fc2.'),
)
# ViTDet's are inside the attention itself; SAM calls the layers of its MLP lin1, lin2.
_VITDET = (
    (r'\.attn\.rel_pos_([hw])$', r'.attn.rel_pos_bias.rel_pos_\1'),
    (r'\.mlp\.lin([12])\.', r'.mlp.fc\1.'),
)
_BIAS_TABLE = 'relative_position_bias_table'
_SHARED_BIAS_TABLE = f'rel_pos_bias.{_BIAS_TABLE}'


def to_our_names(weights: Weights) -> dict[str, Tensor]:
    """Weights of any known family in our names, without classifier.

    Keys that no family has keep their names.
    """
    weights = {k: v for k, v in weights.items() if not _LEFT_OUT.search(k)}
    for mark, translate in FAMILIES.items():
        if any(re.search(mark, key) for key in weights):
            return translate(weights)
    return weights


def from_beit(weights: Weights) -> dict[str, Tensor]:
    """BEiT and BEiTv2, finetuned or not.

    Only q and v have a bias. A bias of k adds the same to all logits of a query, which
    the softmax ignores: zeros are exact, and stay so in training. Files of the
    pretraining share one bias table among the blocks.
    """
    weights = from_deit3(weights)
    shared = weights.pop(_SHARED_BIAS_TABLE, None)
    blocks = {m[0] for k in weights if (m := re.match(r'blocks\.\d+', k))}
    for attn in (f'{block}.attn' for block in sorted(blocks)):
        if {f'{attn}.q_bias', f'{attn}.v_bias'} <= weights.keys():
            q, v = (weights.pop(f'{attn}.{name}_bias') for name in 'qv')
            weights[f'{attn}.qkv.bias'] = torch.cat([q, torch.zeros_like(q), v])
        own = weights.pop(f'{attn}.{_BIAS_TABLE}', None)
        tables = [table for table in (own, shared) if table is not None]
        if tables:
            weights[f'{attn}.rel_pos_bias.table'] = torch.stack(tables).sum(0)
    return weights


def from_deit3(weights: Weights) -> dict[str, Tensor]:
    """The official DeiT3 files: LayerScale is named ``gamma_1`` and ``gamma_2``."""
    return _rename(weights, _LAYER_SCALE)


def from_dinov2(weights: Weights) -> dict[str, Tensor]:
    """The official DINOv2 files with registers."""
    return _rename(weights, _DINOV2)


def from_distilled_deit(weights: Weights) -> dict[str, Tensor]:
    """DeiT with a distillation token, which to us is a register."""
    return _rename(weights, _DISTILLED)


def from_vitdet(weights: Weights) -> dict[str, Tensor]:
    """ViTDet and SAM, whose attention has decomposed relative positions.

    ViTDet keeps the position embedding's entry for a cls token that it lacks.
    """
    weights = _rename(weights, _VITDET)
    pos_embed = weights.get('pos_embed')
    if pos_embed is None:
        return weights
    num_patches = pos_embed.shape[1] - 1
    if pos_embed.ndim == 4:  # SAM's is a map
        weights['pos_embed'] = pos_embed.flatten(1, 2)
    elif 'cls_token' not in weights and math.isqrt(num_patches) ** 2 == num_patches:
        weights['pos_embed'] = pos_embed[:, 1:]
    return weights


def from_mmpretrain(weights: Weights) -> dict[str, Tensor]:
    """The ``VisionTransformer`` of mmpretrain."""
    return _rename(weights, _MMPRETRAIN)


# What one of the keys must hold, tried in this order.
FAMILIES: dict[str, Callable[[Weights], dict[str, Tensor]]] = {
    rf'{_BIAS_TABLE}$|\.attn\.q_bias$': from_beit,
    r'\.attn\.rel_pos_h$': from_vitdet,
    r'\.gamma_1$': from_deit3,
    r'^register_tokens$': from_dinov2,
    r'^dist_token$': from_distilled_deit,
    r'^layers\.0\.ln1\.weight$': from_mmpretrain,
}


def _rename(weights: Weights, table: Sequence[tuple[str, str]]) -> dict[str, Tensor]:
    """Apply all patterns of a table, in its order, to every key."""
    renamed = {}
    for key, value in weights.items():
        for pattern, replacement in table:
            key = re.sub(pattern, replacement, key)
        renamed[key] = value
    return renamed
