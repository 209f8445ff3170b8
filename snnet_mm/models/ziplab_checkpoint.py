"""Checkpoints of the authors' released code, in our key names."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from snnet_mm.stitching import TwoWaySpace
from snnet_mm.utils import check

from .backbones.stitched_backbone import SPACE_RECORD, as_space_record

# Applied in this order to the part of a key that follows 'backbone.'.
_RENAMES = (
    (r'^stitch_layers\.0\.(\d+)\.transform\.', r'stitching_layers.0to1_\1.'),
    (r'^stitch_layers\.1\.(\d+)\.transform\.', r'stitching_layers.1to0_\1.'),
    (r'^stitch_layers\.(\d+)\.transform\.', r'stitching_layers.0to1_\1.'),  # SN-Netv1
    (r'^(anchors\.\d+)\.layers\.', r'\1.blocks.'),
    (r'\.patch_embed\.projection\.', '.patch_embed.proj.'),
    (r'\.gamma_([12])$', r'.ls\1.gamma'),
    (r'\.ln([12])\.', r'.norm\1.'),
    (r'\.attn\.relative_position_bias_table$', '.attn.rel_pos_bias.table'),
    (r'\.ffn\.layers\.0\.0\.', '.mlp.fc1.'),
    (r'\.ffn\.layers\.1\.', '.mlp.fc2.'),
)
# Their classifier is one module; ours has a backbone and a head.
_CLASSIFIER = re.compile(r'^anchors\.(\d+)\.(norm|head)\.')
_DERIVED = re.compile(r'\.relative_position_index$')


def convert_ziplab(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the weights of the authors' SN-Netv1 or v2 to ours.

    They are those of a backbone, of a segmentor that holds it under ``backbone.``, or
    of their classifier, for ours with a ``StitchedClsHead``. Where they tell their
    stitching space (not for sliding windows) its record is added.
    """
    prefix = 'backbone.' if any(k.startswith('backbone.') for k in state_dict) else ''
    theirs = any(k.startswith(f'{prefix}stitch_layers.') for k in state_dict)
    wanted = "one of the authors' stitched networks, with 'stitch_layers'"
    check(theirs, 'src', list(state_dict)[:3], wanted)
    classifies = any(_CLASSIFIER.match(k) for k in state_dict)
    ours = 'backbone.' if classifies else prefix
    converted = {}
    for key, value in state_dict.items():
        if _DERIVED.search(key):
            continue
        if classifies and _CLASSIFIER.match(key):
            key = _CLASSIFIER.sub(r'head.anchor_heads.\1.\2.', key)
        elif key.startswith(prefix):
            key = key.removeprefix(prefix)
            for pattern, replacement in _RENAMES:
                key = re.sub(pattern, replacement, key)
            key = ours + key
        converted[key.replace('.conv_depth.head.', '.conv_depth.')] = value
    converted[f'{ours}stitching_initialized'] = torch.tensor(True)
    space = _space_of(converted, ours)
    if space is not None:
        converted[ours + SPACE_RECORD] = as_space_record(space)
    return converted


def _space_of(converted: Mapping[str, Tensor], prefix: str) -> TwoWaySpace | None:
    """Return the space of two anchors that weights are of, if they tell."""
    blocks: dict[int, set[int]] = {}
    for key in converted:
        if match := re.match(rf'{prefix}anchors\.(\d+)\.blocks\.(\d+)\.', key):
            blocks.setdefault(int(match[1]), set()).add(int(match[2]))
    depths = [len(blocks[a]) for a in sorted(blocks)]
    if len(depths) != 2 or depths != sorted(depths):
        return None
    if any(k.startswith(f'{prefix}stitching_layers.1to0_') for k in converted):
        return TwoWaySpace(depths)
    return TwoWaySpace(depths, ('FS',)) if depths[0] < depths[1] else None
