"""Write a config that trains a plain ViT on a folder of labelled images."""

from __future__ import annotations

import argparse
import colorsys
import json
import math
import os
from itertools import chain
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from snnet_mm.utils import (
    ToolParser,
    atomic_path,
    check,
    check_file,
    run_command,
    tool_command,
)

if TYPE_CHECKING:
    from torch import nn

    from snnet_mm.datasets.own_data import OwnData

COUNTED = dict(seg='pixels', det='objects', cls='images')
BATCH_SIZES = dict(seg=4, depth=4, det=2, cls=32)
AREA = 224 * 224  # maximum pixels of an image, in dense tasks
SIDES = dict(det=448, cls=224)  # maximum side of a square image
EPOCHS, MIN_ITERS, MAX_ITERS = 10, 600, 20000
# What every config sets by its variables, after them.
SETTINGS = """\
train_pipeline = [dict(x, **steps.get(x['type'], {})) for x in _base_.train_pipeline]
test_pipeline = [dict(x, **steps.get(x['type'], {})) for x in _base_.test_pipeline]
train_dataloader = dict(
    batch_size=batch_size,
    dataset=dict(dataset, ann_file=train_file, pipeline=train_pipeline))
val_dataloader = dict(dataset=dict(dataset, ann_file=val_file, pipeline=test_pipeline))
test_dataloader = val_dataloader
auto_scale_lr = dict(base_batch_size=batch_size)
warm_up = max(1, min(50, iters // 2))
_base_.param_scheduler[0].end = _base_.param_scheduler[1].begin = warm_up
_base_.param_scheduler[1].end = iters
train_cfg = dict(max_iters=iters, val_interval=max(1, iters // 4))
"""
# Metrics that need variables, by task.
EVALUATORS = dict(
    depth='val_evaluator = test_evaluator = dict(max_depth=max_depth)\n',
    det='val_evaluator = test_evaluator = dict(ann_file=val_file)\n',
)


class Name(str):
    """An expression of variables in a config."""

    __repr__ = str.__str__


SIZE, NUMBER = Name('size'), Name('len(classes)')
# Settings of transforms, of those that the pipelines of the task contain.
RESIZE = dict(scale=Name('size[::-1]'))
STEPS = dict(
    Resize=RESIZE,
    RandomResize=RESIZE,
    RandomResizedCrop=RESIZE,
    RandomCrop=dict(crop_size=SIZE),
)
DEPTH_STEPS = dict(
    Resize=RESIZE, LoadDepthMap=dict(depth_rescale_factor=Name('depth_scale'))
)


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__)
    add = parser.add_argument
    add(
        'folder',
        help='folder of images and labels; for layouts, see docs/tutorials/own_data.md',
    )
    add('--out', required=True, type=Path, help='config to write')
    what = 'seg(mentation), depth, det(ection) or cls (classification)'
    add('--task', required=True, choices=('seg', 'depth', 'det', 'cls'), help=what)
    what = 'plain ViT of timm (default: %(default)s)'
    add('--backbone', default='vit_small_patch14_dinov2', help=what)
    what = "weights file with timm's parameter names (default: timm downloads it)"
    add('--weights', help=what)
    what = 'head of segmentation (default: %(default)s)'
    add('--head', choices=('eomt', 'setr'), default='eomt', help=what)
    what = 'class names of mask values 0, 1, ... (segmentation)'
    add('--classes', nargs='+', default=[], help=what)
    add('--force', action='store_true', help='replace an existing config')
    return parser.parse_args()


def write_project(data: OwnData, args: argparse.Namespace) -> dict[str, Any]:
    """Write the config and its annotation files; return its variables."""
    from yapf.yapflib.yapf_api import FormatCode

    out, task = args.out.expanduser().absolute(), data.task
    check(out.suffix == '.py', '--out', str(out), 'a file that ends in .py')
    suffix = '.json' if task == 'det' else '.txt'
    files = {s: out.with_name(f'{out.stem}_{s}{suffix}') for s in data.splits}
    for path in (out, *files.values()):
        ok = args.force or not path.exists()
        check(ok, '--out', str(path), 'a new file, or --force')
    check_file(args.weights, 'option: --weights')
    vit = build_vit(args.backbone)
    values = dict(data_root=str(data.root))
    values |= {f'{split}_file': str(file) for split, file in files.items()}
    values |= data_variables(data)
    values |= dict(size=input_size(data, vit.patch_embed.patch_size[0]))
    iters = round(EPOCHS * len_of(data.splits['train']) / BATCH_SIZES[task], -2)
    values['iters'] = int(min(max(MIN_ITERS, iters), MAX_ITERS))
    values['batch_size'] = BATCH_SIZES[task]
    base = task
    if task == 'seg' and args.head == 'setr':
        base = 'seg_setr'
    elif task == 'det' and not data.facts['with_mask']:
        base = 'det_boxes'
    base = f"{{__import__('snnet_mm').CONFIGS}}/_base_/own_data/{base}.py"
    settings = dict(model=model_of(data, vit, args), dataset=dataset_of(data))
    settings['steps'] = DEPTH_STEPS if task == 'depth' else STEPS
    lines = [f'{key} = {as_code(value)}' for key, value in values.items()]
    lines.append('# These settings depend on the variables.')
    lines += [f'{key} = {as_code(value)}' for key, value in settings.items()]
    numbers = ' and '.join(f'{len_of(x)} {name}' for name, x in data.splits.items())
    top = f'# {args.backbone} for {numbers} images in {data.root.name}, by'
    top += '\n# tools/new_project.py. Change what is needed; size is in whole patches.'
    text = '\n'.join(
        [top, f'_base_ = [f"{base}"]', *lines, SETTINGS, EVALUATORS.get(task, '')]
    )
    style = '{based_on_style: pep8, column_limit: 88}'
    text, _ = FormatCode(text, style_config=style)
    contents = {out: text}
    for split, file in files.items():
        lines = data.splits[split]
        is_coco = isinstance(lines, dict)
        contents[file] = json.dumps(lines) if is_coco else '\n'.join(lines) + '\n'
    for path, content in contents.items():
        with atomic_path(path) as temporary:
            temporary.write_text(content)
    return values


def build_vit(name: str) -> nn.Module:
    """Build a plain ViT of timm without weights."""
    import torch

    from snnet_mm.anchors import PlainFamily, family_of
    from snnet_mm.utils.timm_models import create_timm_model

    with torch.device('meta'):
        vit = create_timm_model(name, num_classes=0)
    family_of(vit, PlainFamily, '--backbone', name)
    return vit


def len_of(split: list | dict) -> int:
    """Return the number of images of a split."""
    return len(split['images'] if isinstance(split, dict) else split)


def as_code(value: Any) -> str:
    """Return a value as Python code, with ``dict()`` for dicts of settings."""
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return f'dict({", ".join(f"{k}={as_code(v)}" for k, v in value.items())})'
    if isinstance(value, list):
        return f'[{", ".join(map(as_code, value))}]'
    return repr(value)


def data_variables(data: OwnData) -> dict[str, Any]:
    """Return the variables of a config that describe the labels."""
    if data.task == 'depth':
        # The maximum depth in metres, if depth maps are in millimetres.
        farthest = math.ceil(data.facts['depths'][1] * 1e-3)
        return dict(depth_scale=1e-3, max_depth=farthest)
    values: dict[str, Any] = dict(classes=data.classes)
    if data.task != 'cls':
        hues = [i / len(data.classes) for i in range(len(data.classes))]
        rgb = [colorsys.hsv_to_rgb(h, 0.8, 0.6 + i % 3 / 5) for i, h in enumerate(hues)]
        values['palette'] = [tuple(round(255 * x) for x in c) for c in rgb]
    return values


def dataset_of(data: OwnData) -> dict[str, Any]:
    """Return the settings that training and validation data share."""
    settings: dict[str, Any] = dict(data_root=Name('data_root'))
    if data.task != 'depth':
        palette = dict(palette=Name('palette')) if data.task != 'cls' else {}
        settings['metainfo'] = dict(classes=Name('classes')) | palette
    label_map = data.facts.get('label_map')
    return settings | (dict(label_map=label_map) if label_map else {})


def model_of(data: OwnData, vit: nn.Module, args: argparse.Namespace) -> dict[str, Any]:
    """Return the settings of the model."""
    patch, width, depth = vit.patch_embed.patch_size[0], vit.embed_dim, len(vit.blocks)
    has_cls, task = getattr(vit, 'cls_token', None) is not None, data.task
    weights = args.weights and os.path.abspath(args.weights)
    init = dict(checkpoint=weights or f'timm://{args.backbone}')
    prepare: dict[str, Any] = {
        key: [round(255 * x, 3) for x in vit.pretrained_cfg[key]]
        for key in ('mean', 'std')
    }
    model = dict(
        data_preprocessor=prepare,
        backbone=dict(model=args.backbone, img_size=SIZE, init_cfg=init),
    )
    if task == 'seg':
        prepare['size'] = SIZE
        if args.head == 'eomt':
            return model | eomt(vit, args.backbone, init)
        model['decode_head'] = dict(in_channels=width, num_classes=NUMBER)
    elif task == 'depth':
        prepare |= dict(size=SIZE, test_cfg=dict(size_divisor=patch))
        maps = tuple(depth * i // 4 - 1 for i in (1, 2, 3, 4))
        model['backbone'] |= dict(out_indices=maps, with_cls=has_cls)
        readout = 'project' if has_cls else 'ignore'
        head = dict(in_channels=width, readout_type=readout)
        model['decode_head'] = head | dict(max_depth=Name('max_depth'))
    elif task == 'cls':
        read = dict(in_channels=width, pooling='cls' if has_cls else 'mean')
        model['head'] = dict(num_classes=NUMBER, anchor_heads=[read])
    else:
        prepare['pad_size_divisor'] = Name('size[0]')
        strides = [patch / 4, patch / 2, patch, patch * 2]
        # The strides have a geometric mean of 0.7 patches; sizes are of median objects.
        side = data.facts['share'] * input_size(data, patch)[0]
        anchor = min(max(2, round(side / (0.7 * patch))), 16)
        most = max(100, math.ceil(data.facts['max_per_image'] / 100) * 100)
        kinds = ('bbox', 'mask') if data.facts['with_mask'] else ('bbox',)
        roi = {f'{kind}_roi_extractor': dict(featmap_strides=strides) for kind in kinds}
        roi |= {f'{kind}_head': dict(num_classes=NUMBER) for kind in kinds}
        model |= dict(
            neck=dict(in_channels=width, in_stride=patch, strides=strides),
            rpn_head=dict(anchor_generator=dict(scales=[anchor], strides=strides)),
            roi_head=roi,
            test_cfg=dict(rcnn=dict(max_per_img=most)),
        )
    return model


def eomt(vit: nn.Module, name: str, init: dict) -> dict[str, Any]:
    """Return a backbone of the first blocks of a ViT, and a head of the others."""
    block, registers = vit.blocks[0], getattr(vit, 'num_reg_tokens', 0)
    kinds = [vit, block, block.mlp, vit.norm, getattr(vit, 'norm_pre', None)]
    kinds.append(getattr(block.attn, 'q_norm', None))
    names = 'VisionTransformer', 'Block', 'Mlp', 'LayerNorm', 'Identity', 'Identity'
    ok = names == tuple(type(kind).__name__ for kind in kinds)
    ok = ok and vit.has_class_token and (not registers or vit.no_embed_class)
    expected = 'a ViT with a cls token and without RoPE, such as of DINOv2; or --head '
    check(ok, '--backbone', name, f'{expected}setr')
    depth, last = len(vit.blocks), min(4, len(vit.blocks) // 4)
    parts = []
    for begin, end in ((0, depth - last), (depth - last, depth)):
        arch = dict(embed_dims=vit.embed_dim, depth=end - begin)
        arch['num_heads'] = block.attn.num_heads
        arch['mlp_ratio'] = block.mlp.fc1.out_features / vit.embed_dim
        part = dict(arch=arch, img_size=SIZE, patch_size=vit.patch_embed.patch_size[0])
        part |= dict(num_registers=registers, norm_eps=vit.norm.eps)
        scaled = type(block.ls1).__name__ == 'LayerScale'
        part['layer_scale_init'] = 1.0 if scaled else None
        part['init_cfg'] = dict(init, blocks=(begin, end))
        parts.append(part)
    return dict(backbone=parts[0], decode_head=dict(num_classes=NUMBER, vit=parts[1]))


def input_size(data: OwnData, patch: int) -> tuple[int, ...]:
    """Return height and width of training images, as multiples of the patch size.

    They are medians over all images, reduced if large. Detection and classification use
    squares.
    """
    height, width = (median(sides) for sides in zip(*data.sizes, strict=True))
    if data.task in SIDES:
        height = width = min(max(height, width), SIDES[data.task])
    scale = min(1, math.sqrt(AREA / (height * width))) if data.task not in SIDES else 1
    return tuple(max(4, round(x * scale / patch)) * patch for x in (height, width))


def print_findings(data: OwnData) -> None:
    console = Console(highlight=False, soft_wrap=True)
    parts = ', '.join(f'{len_of(x)} {name}' for name, x in data.splits.items())
    sizes = sorted({*data.sizes}, key=data.sizes.count, reverse=True)
    shown = [f'{w}x{h} ({data.sizes.count((h, w))} images)' for h, w in sizes[:3]]
    more = f' and {len(sizes) - 3} other sizes' if len(sizes) > 3 else ''
    console.print(f'Images: {parts}; of {", ".join(shown)}{more}')
    if data.task == 'depth':
        low, high = (f'{x / 1000:.3g}' for x in data.facts['depths'])
        console.print(f'Depth, if files are in millimetres: {low} to {high} m')
    else:
        table = Table('label', 'class', COUNTED[data.task], 'share')
        for i, name in enumerate(data.classes):
            number, share = data.counts[name], data.counts[name] / data.counts.total()
            table.add_row(str(i), name, f'{number:,}', f'{share:.1%}')
        console.print(table)
    for note in data.notes:
        console.print(f'Note: {note}')


def main() -> None:
    args = parse_args()

    from snnet_mm.datasets.own_data import read_own_data

    classes = [*chain.from_iterable(x.split(',') for x in args.classes)]
    data = read_own_data(args.folder, args.task, [x for x in classes if x])
    values = write_project(data, args)
    print_findings(data)
    trained = Path('work_dirs', args.out.stem, f'iter_{values["iters"]}.pth')
    height, width = values['size']
    print(f"""Wrote {args.out}: {width}x{height} pixels, {values['iters']} iterations
Next:
  {tool_command('train.py', args.out)}
  {tool_command('make_elastic.py', args.out, trained)}""")


if __name__ == '__main__':
    run_command(main)
