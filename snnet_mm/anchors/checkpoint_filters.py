"""Published weights of plain ViTs, in our key names.

Every function takes a state dict and returns a new one. None of them reads an anchor:
what depends on its geometry is in :mod:`snnet_mm.anchors.fit_positions`. MAE, AugReg
and timm's DINOv2 have our names already; ``docs/anchors.md`` lists the arguments of the
anchor that each family needs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import torch
from torch import Tensor

Weights = Mapping[str, Tensor]

# Classifiers, decoders of the pretraining and what follows from the grid.
_LEFT_OUT = re.compile(
    r'^(head|head_dist|lm_head|fc_norm|pre_logits)\.'
    r'|^mask_token$|^decoder_(embed|pos_embed|blocks|norm|pred)(\.|$)'
    r'|relative_position_index$'
)
# Applied to every key, in this order.
_RENAMES = (
    (r'\.gamma_([12])$', r'.ls\1.gamma'),  # official DeiT3, BEiT
    (r'^register_tokens$', 'reg_token'),  # official DINOv2
    (r'^dist_token$', 'reg_token'),  # distilled DeiT, whose token is a register to us
    # ViTDet and SAM: decomposed relative positions are the attention's own.
    (r'\.attn\.rel_pos_([hw])$', r'.attn.rel_pos_bias.rel_pos_\1'),
    (r'\.mlp\.lin([12])\.', r'.mlp.fc\1.'),
    # mmpretrain's VisionTransformer
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^ln1\.', 'norm.'),
    (r'^layers\.', 'blocks.'),
    (r'\.ln([12])\.', r'.norm\1.'),
    (r'\.(?:attn|ffn)\.gamma([12])\.weight$', r'.ls\1.gamma'),
    (r'\.ffn\.layers\.0\.0\.', '.mlp.fc1.'),
    (r'\.ffn\.layers\.1\.', '.mlp.fc2.'),
)
_BIAS_TABLE = 'relative_position_bias_table'


def to_our_names(weights: Weights) -> dict[str, Tensor]:
    """Return weights of any known family in our names, without classifier.

    Keys that no family has keep their names.
    """
    renamed = {}
    for key, value in weights.items():
        if not _LEFT_OUT.search(key):
            for pattern, replacement in _RENAMES:
                key = re.sub(pattern, replacement, key)
            renamed[key] = value
    if any(key.endswith('.attn.rel_pos_h') for key in weights):
        return _without_cls_entry(renamed)
    return _join_biases(renamed)


def _join_biases(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Join biases of BEiT and BEiTv2, finetuned or not.

    Only q and v have a bias. A bias of k adds the same to all logits of a query, which
    the softmax ignores: zeros are exact, and stay so in training. Files of the
    pretraining share one bias table among the blocks.
    """
    shared = weights.pop(f'rel_pos_bias.{_BIAS_TABLE}', None)
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


def _without_cls_entry(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Leave out the position of a cls token that ViTDet lacks; SAM's are a map."""
    pos_embed = weights.get('pos_embed')
    if pos_embed is not None:
        num_patches = pos_embed.shape[1] - 1
        if pos_embed.ndim == 4:
            weights['pos_embed'] = pos_embed.flatten(1, 2)
        elif 'cls_token' not in weights and math.isqrt(num_patches) ** 2 == num_patches:
            weights['pos_embed'] = pos_embed[:, 1:]
    return weights
