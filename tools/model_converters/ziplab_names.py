"""Conversion of checkpoints of the authors' released code to our key names."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, pairwise

import torch
from torch import Tensor

from snnet_mm.anchors.checkpoint_filters import to_our_names
from snnet_mm.anchors.pretrained import rename
from snnet_mm.models.backbones.stitched_backbone import SPACE_RECORD, as_space_record
from snnet_mm.stitching import (
    SlidingWindowSpace,
    StagedSpace,
    StitchingSpace,
    TwoWaySpace,
)
from snnet_mm.stitching.space import layer_name
from snnet_mm.utils import check

# Patterns for names of networks with stages (Swin, ResNet, LeViT), applied in this
# order after their blocks are numbered.
_IN_STAGE = re.compile(r'layers\.(\d+)\.blocks\.(\d+)\.(.+)')
_STAGED = (
    (r'^(conv1|bn1)\.', r'stem.\1.'),
    (r'^patch_embed\.(proj|norm)\.', r'stem.\1.'),
    (r'^patch_embed\.(\d+)\.', lambda found: f'stem.conv{int(found[1]) // 2 + 1}.'),
    (r'(attn|mlp)\.m\.', r'\1.'),
    (r'mlp\.([02])\.', lambda found: f'mlp.ln{int(found[1]) // 2 + 1}.'),
    (r'\.(q|proj)\.1\.', r'.\1.ln.'),
    (r'\.c\.weight$', '.linear.weight'),
)
# The authors' classifier is one module; ours has a backbone and a head.
_CLASSIFIER = re.compile(r'(norm|head|head_dist|fc)\.')
_HEAD = (
    (r'^fc\.', 'head.'),  # ResNet
    (r'^head(_dist)?\.bn\.', r'norm\1.'),  # LeViT
    (r'^head(_dist)?\.l\.', r'head\1.'),
)
_DERIVED = re.compile(r'\.(relative_position_index|attn_mask|attention_bias_idxs)$')

Weights = dict[str, Tensor]


def convert_ziplab(state_dict: Mapping[str, Tensor]) -> Weights:
    """Rename weights of the authors' SN-Netv1 or SN-Netv2 to our names.

    They then fit a backbone, a segmentor, or a classifier with a ``StitchedClsHead``.
    Networks with stages require ``share_layers=True``. If the weights determine the
    stitching space, with ``kernel=2, stride=1`` only, its record is added.
    """
    prefix = 'backbone.' if any(k.startswith('backbone.') for k in state_dict) else ''
    converted, layers, anchors = {}, {}, defaultdict(dict)
    for key, value in state_dict.items():
        name = key.removeprefix(prefix)
        if found := re.match(r'anchors\.(\d+)\.(.+)', name):
            a, name = int(found[1]), found[2]
            if _CLASSIFIER.match(name):
                converted[f'head.anchor_heads.{a}.{rename(name, _HEAD)}'] = value
            elif not _DERIVED.search(name):
                anchors[a][name] = value
        elif found := re.match(r'stitch_layers\.([\d.]+)\.transform\.(.+)', name):
            place = tuple(map(int, found[1].split('.')))
            layers[place, found[2]] = value
        else:
            converted[key.replace('.conv_depth.head.', '.conv_depth.')] = value
    expected = "one of the authors' stitched networks, with 'stitch_layers'"
    check(anchors and layers, 'argument: src', list(state_dict)[:3], expected)
    ours = 'backbone.' if any(k.startswith('head.anch') for k in converted) else prefix
    depths = []
    for a in sorted(anchors):
        of_stages, weights = _convert_anchor(anchors[a])
        depths.append(of_stages)
        converted |= {f'{ours}anchors.{a}.{k}': v for k, v in weights.items()}
    # ResNets are stitched from the second stage on.
    first = int(any(k.startswith('layer1.') for k in anchors[0]))
    space, names = _space_and_names(depths, {place for place, _ in layers}, first)
    for (place, kind), value in layers.items():
        value = value.flatten(1) if kind == 'weight' else value  # 1x1 convolution
        converted[f'{ours}stitching_layers.{names[place]}.{kind}'] = value
    converted[f'{ours}stitching_initialized'] = torch.tensor(True)
    if space is not None:
        converted[ours + SPACE_RECORD] = as_space_record(space)
    return converted


def _convert_anchor(weights: Weights) -> tuple[tuple[int, ...], Weights]:
    """Return the stage depths of an anchor, and its weights under our names."""
    kv = (re.match(r'blocks\.(\d+)\.kv\.c', name) for name in weights)
    leading = [int(found[1]) // 2 for found in kv if found]
    weights = {_staged_name(name, leading): v for name, v in weights.items()}
    found = (_IN_STAGE.match(name) for name in weights)
    blocks = sorted({(int(f[1]), int(f[2])) for f in found if f})
    if not blocks:
        weights = to_our_names(weights)
        blocks = {k.split('.')[1] for k in weights if k.startswith('blocks.')}
        return (len(blocks),), weights
    numbers = {block: i for i, block in enumerate(blocks)}
    merges = any('.downsample.' in k and not _IN_STAGE.match(k) for k in weights)

    def ours(name: str) -> str:
        if found := _IN_STAGE.match(name):
            stage, block = int(found[1]), int(found[2])
            inner = 'block.' if merges and stage and not block else ''
            name = f'blocks.{numbers[stage, block]}.{inner}{found[3]}'
        elif found := re.match(r'layers\.(\d+)\.(downsample\..+)', name):
            name = f'blocks.{numbers[int(found[1]) + 1, 0]}.{found[2]}'
        return rename(name, _STAGED)

    depths = tuple(Counter(stage for stage, _ in blocks).values())
    return depths, {ours(name): v for name, v in weights.items()}


def _staged_name(name: str, leading: Collection[int]) -> str:
    """Convert a weight name of a ResNet or LeViT to the naming scheme of Swin.

    LeViT numbers attentions and MLPs alternately, in pairs. ``leading`` lists the pairs
    that lead into the next stage.
    """
    if found := re.match(r'layer(\d+)\.(\d+)\.(.+)', name):
        return f'layers.{int(found[1]) - 1}.blocks.{found[2]}.{found[3]}'
    found = re.match(r'blocks\.(\d+)\.(.+)', name)
    if not (leading and found):
        return name
    pair, second = divmod(int(found[1]), 2)
    before = [p for p in leading if p < pair]
    part, place = 'attn', f'blocks.{pair - max(before, default=-1) - 1}'
    if pair in leading:
        part, place = 'attn_downsample', 'downsample'
    return f'layers.{len(before)}.{place}.{"mlp" if second else part}.{found[2]}'


def _space_and_names(
    depths: Sequence[tuple[int, ...]], places: Collection[tuple[int, ...]], first: int
) -> tuple[StitchingSpace | None, dict[tuple[int, ...], str]]:
    """Return the space of the weights, None if unknown, and our layer names."""
    k, names = len(depths), {}
    if len(depths[0]) > 1:
        stages = sorted({place[0] + first for place in places})
        space = StagedSpace(depths, stages, maps=False, share_layers=True)
        fits, expected = len(space.layers) == len(places), f'layers of {depths} blocks'
        check(fits, 'argument: src', f'{len(places)} stitching layers', expected)
        return space, dict(zip(sorted(places), space.layers, strict=True))
    plain = [depth for (depth,) in depths]
    groups = {place[0] for place in places if len(place) > 1} or {0}
    pairs = list(pairwise(range(k)))
    if len(groups) > len(pairs):
        pairs = [(0, 1), (1, 0)] if k == 2 else list(combinations(range(k), 2))
    expected = f'layers of all pairs of {k} anchors, or of neighbours'
    check(
        len(groups) == len(pairs),
        'argument: src',
        f'layers of {len(groups)} pairs',
        expected,
    )
    for place in places:
        a, b = pairs[place[0] if len(place) > 1 else 0]
        names[place] = layer_name(a, b, place[-1])
    if k == 2 and plain == sorted(plain) and len(pairs) == 2:
        return TwoWaySpace(plain), names
    if k == 2 and plain[0] < plain[1]:
        return TwoWaySpace(plain, ('FS',)), names
    if len(places) == (plain[0] - 1) * len(pairs) and len({*plain}) == 1:
        return SlidingWindowSpace(plain, nearest=len(pairs) < k), names
    return None, names
