"""Write a config that trains a plain ViT on a folder of labelled images."""

import colorsys
import json
import math
import os
import re
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from yapf.yapflib.yapf_api import FormatCode

from snnet_mm.anchors import PlainFamily, family_of
from snnet_mm.datasets.labelled_folder import LabelledFolder
from snnet_mm.utils import atomic_path, check, check_file
from snnet_mm.utils.timm_models import create_timm_model

PACKAGE = 'snnet_mm'
TEMPLATES = Path(__file__).parents[1] / '.mim' / 'configs' / '_base_' / 'own_data'
# The line of a template after its variables. Configs get all that follows, because
# settings of a `_base_` would not follow variables that the user changes.
MARK = '# These settings depend on the variables.\n'
BATCH_SIZES = dict(seg=4, depth=4, det=2, cls=32)
# At the rate of the other heads, depth saturates and detection does not learn.
HEAD_RATES = dict(seg=1e-3, depth=3e-4, det=3e-4, cls=1e-3)
AREA = 224 * 224  # maximum pixels of an image, in dense tasks
SIDES = dict(det=448, cls=224)  # maximum side of a square image
EPOCHS, MIN_ITERS, MAX_ITERS = 10, 600, 20000


def write_project(
    data: LabelledFolder,
    out: str | os.PathLike,
    backbone: str = 'vit_small_patch14_dinov2',
    weights: str | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Write a config that trains a ViT, and annotation files beside it.

    Args:
        data: Result of :func:`read_folder`.
        out: Path of the config to write.
        backbone: Name of a plain ViT in timm.
        weights: File of its weights. Default: timm downloads them.
        force: Whether to overwrite an existing config or annotation file.

    Returns:
        The variables at the top of the config.
    """
    out = Path(out).expanduser().absolute()
    check(out.suffix == '.py', '--out', str(out), 'a file that ends in .py')
    suffix = '.json' if data.task == 'det' else '.txt'
    files = {s: out.with_name(f'{out.stem}_{s}{suffix}') for s in data.splits}
    for path in (out, *files.values()):
        check(force or not path.exists(), '--out', str(path), 'a new file, or --force')
    check_file(weights, 'option: --weights')
    with torch.device('meta'):
        vit = create_timm_model(backbone, num_classes=0)
    family_of(vit, PlainFamily, '--backbone', backbone)
    values = dict(data_root=str(data.root)) | _data_values(data, files)
    values |= _model_values(data, vit, backbone, weights)
    epoch = data.splits['train'].number / BATCH_SIZES[data.task]
    iters = min(max(MIN_ITERS, round(EPOCHS * epoch, -2)), MAX_ITERS)
    values |= dict(batch_size=BATCH_SIZES[data.task], iters=int(iters))
    values |= dict(head_rate=HEAD_RATES[data.task], backbone_rate=3e-5)
    numbers = ' and '.join(f'{s.number} {name}' for name, s in data.splits.items())
    top = f'# {backbone} for {numbers} images in {data.root.name}, by\n'
    top += '# tools/new_project.py. Change what is needed; size is in whole patches.\n'
    bases, body = _template(data.task)
    top += f'_base_ = {bases}\n'
    top += ''.join(f'{name} = {as_code(value)}\n' for name, value in values.items())
    top, _ = FormatCode(top, style_config='{based_on_style: pep8, column_limit: 88}')
    with atomic_path(out) as temporary:
        temporary.write_text('\n'.join([top, body, _template('schedule')[1]]))
    return values


def _template(name: str) -> tuple[str, str]:
    """Return the bases of a template, as code, and what depends on its variables."""
    head, mark, body = (TEMPLATES / f'{name}.py').read_text().partition(MARK)
    assert mark, name
    root = f'{{__import__({PACKAGE!r}).CONFIGS}}/_base_'  # where it is installed
    names = re.findall(r"'\.\./([^']+)'", head)
    code = ', '.join(f'f"{root}/{name}"' for name in names)
    return f'[{code}]', body


def as_code(value: Any) -> str:
    """Return a value as Python code, with ``dict()`` for dicts of settings."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return f'dict({", ".join(f"{k}={as_code(v)}" for k, v in value.items())})'
    return repr(value)


def _data_values(data: LabelledFolder, files: Mapping[str, Path]) -> dict[str, Any]:
    """Write annotation files; return the config variables that describe the data."""
    values = {}
    for split, part in data.splits.items():
        lines = part.annotations
        text = json.dumps(lines) if data.task == 'det' else '\n'.join(lines) + '\n'
        with atomic_path(files[split]) as temporary:
            temporary.write_text(text)
        values[split] = dict(ann_file=str(files[split]), data_prefix=part.prefix)
        if label_map := data.facts.get('label_map'):
            values[split]['label_map'] = label_map
    if data.task == 'depth':
        # The maximum depth in metres, if depth maps are in millimetres.
        farthest = math.ceil(data.facts['depths'][2] * 1e-3)
        return values | dict(depth_scale=1e-3, max_depth=farthest)
    values['classes'] = data.classes
    if data.task != 'cls':
        hues = [i / len(data.classes) for i in range(len(data.classes))]
        rgb = [colorsys.hsv_to_rgb(h, 0.8, 0.6 + i % 3 / 5) for i, h in enumerate(hues)]
        values['palette'] = [tuple(round(255 * x) for x in c) for c in rgb]
    return values


def _model_values(
    data: LabelledFolder, vit: nn.Module, name: str, weights: str | None
) -> dict[str, Any]:
    """Return the config variables that describe the model and its images."""
    patch, width, depth = vit.patch_embed.patch_size[0], vit.embed_dim, len(vit.blocks)
    has_cls = getattr(vit, 'cls_token', None) is not None
    checkpoint = f'timm://{name}' if weights is None else os.path.abspath(weights)
    size = input_size(data, patch)
    values = dict(size=size, patch=patch, width=width)
    init = dict(type='Pretrained', checkpoint=checkpoint)
    backbone = dict(type='TimmAnchor', model=name, final_norm=False, init_cfg=init)
    if data.task == 'depth':
        values['readout'] = 'project' if has_cls else 'ignore'
        maps = tuple(depth * i // 4 - 1 for i in (1, 2, 3, 4))
        backbone |= dict(out_indices=maps, with_cls=has_cls)
    elif data.task == 'cls':
        values['pooling'] = 'cls' if has_cls else 'mean'
        backbone['out'] = 'end'
    elif data.task == 'det':
        facts = data.facts
        # The strides of the four pyramid levels have a geometric mean of 0.7 patches.
        scale = round(facts['share'] * size[0] / (0.7 * patch))
        most = max(100, math.ceil(facts['max_per_image'] / 100) * 100)
        values |= dict(with_mask=facts['with_mask'], max_per_image=most)
        values['anchor_scale'] = min(max(2, scale), 16)
    images = {
        key: [round(255 * x, 3) for x in vit.pretrained_cfg[key]]
        for key in ('mean', 'std')
    }
    return values | dict(backbone=backbone, **images)


def input_size(data: LabelledFolder, patch: int) -> tuple[int, int]:
    """Return height and width of training images, as multiples of the patch size.

    They are medians over all images, reduced if large. Detection and classification use
    squares.
    """
    height, width = (median(list(x)) for x in zip(*data.sizes.elements(), strict=True))
    if data.task in SIDES:
        height = width = min(max(height, width), SIDES[data.task])
    scale = min(1, math.sqrt(AREA / (height * width))) if data.task not in SIDES else 1
    return tuple(max(4, round(x * scale / patch)) * patch for x in (height, width))
