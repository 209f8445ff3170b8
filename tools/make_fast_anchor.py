"""Make a fast anchor of a slow one: ``tools/make_fast_anchor.py CONFIG CKPT``.

Leaves out blocks (``--every``, ``--blocks``) or narrows all of them (``--width``), then
trains the smaller network to do what the slow one does on the images of the config.
Writes ``fast.py``, the config of the fast anchor alone, and ``fast.pth``, its weights,
and says how good the slow anchor, the cut one and the trained one are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os.path as osp
from collections.abc import Sequence
from copy import deepcopy
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from snnet_mm.utils import (
    ToolParser,
    atomic_path,
    check,
    check_writable,
    run_command,
    write_json,
)

if TYPE_CHECKING:
    import torch
    from mmengine.config import Config

LAST = 'last_checkpoint'  # mmengine's name of the file that names it
NUM_IMAGES = 64  # that the directions of --width are from


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.split('\n\n')[0])
    add = parser.add_argument
    add('config', help='config of the slow anchor alone, a PlainViT in any mm model')
    add('checkpoint', help='its trained checkpoint')
    size = parser.add_mutually_exclusive_group()
    what = 'keep every n-th block (default: 2)'
    size.add_argument('--every', type=int, default=2, help=what)
    what = 'blocks to keep, such as 0 3 6 9'
    size.add_argument('--blocks', type=int, nargs='+', help=what)
    what = 'keep all blocks, this wide, a multiple of the width of a head'
    size.add_argument('--width', type=int, help=what)
    what = 'output folder (default: work_dirs/NAME_fast)'
    add('--work-dir', type=Path, help=what)
    add('--iters', type=int, default=300, help='iterations of training (default: 300)')
    what = 'train in mixed precision; on a CPU in bfloat16'
    add('--amp', action='store_true', help=what)
    add('--no-labels', action='store_true', help='learn from tokens alone')
    add('--resume', action='store_true', help='go on with an interrupted training')
    parser.add_cfg_options()
    args = parser.parse_args()
    check(args.iters > 1, '--iters', args.iters, '2 or more')
    check(args.every > 1, '--every', args.every, '2 or more')
    if args.work_dir is None:
        args.work_dir = Path('work_dirs', Path(args.config).stem + '_fast')
    return args


def save(path: Path, **content: object) -> None:
    import torch

    with atomic_path(path) as temporary:
        torch.save(content, temporary)


def cut(cfg: Config, args: argparse.Namespace) -> tuple[dict, list[int], dict]:
    """Cut the slow anchor; return arch, places, and the weights to begin with."""
    from snnet_mm.anchors import PlainViT, contract_width, keep_blocks
    from snnet_mm.inference.init_model import init_model

    model = init_model(cfg, args.checkpoint, device='cpu')
    anchor, prefix = model.backbone, 'backbone.'
    check(type(anchor) is PlainViT, 'backbone.type', type(anchor).__name__, 'PlainViT')
    weights, depth, (width, *_) = model.state_dict(), anchor.depth, anchor.block_dims
    heads = anchor.blocks[0].attn.num_heads
    arch = dict(embed_dims=width, depth=depth, num_heads=heads)
    arch['mlp_ratio'] = anchor.blocks[0].mlp.fc1.out_features / width
    own = anchor.state_dict()
    if args.width is None:
        blocks = args.blocks = args.blocks or list(range(0, depth, args.every))
        own = keep_blocks(own, blocks)
        places = [*(b - 1 for b in blocks[1:]), depth - 1]
        arch['depth'] = len(blocks)
    else:
        block = anchor.blocks[0]
        for key, value, right in (
            ('mlp_shortcut', block.mlp_shortcut, False),
            ('qkv_bias', block.attn.qkv.bias is not None, True),
        ):
            check(value is right, f'backbone.{key}', value, f'{right}, for --width')
        basis, places = find_directions(model, cfg, args), list(range(depth))
        own = contract_width(own, basis, heads)
        arch |= dict(embed_dims=args.width, num_heads=heads * args.width // width)
        weights = {}  # a head is of one width
        save(args.work_dir / 'basis.pth', basis=basis)
    rest = {k: v for k, v in weights.items() if not k.startswith(prefix)}
    return arch, places, rest | {prefix + k: v for k, v in own.items()}


def find_directions(model, cfg: Config, args: argparse.Namespace) -> torch.Tensor:
    """Return the principal directions of the tokens of all blocks."""
    import torch
    from mmengine.runner import Runner

    from snnet_mm.anchors import principal_directions
    from snnet_mm.models import recorded_tokens
    from snnet_mm.utils import isolated_rng

    collected = {i: [] for i in range(model.backbone.depth)}
    loader = Runner.build_dataloader(cfg.train_dataloader, seed=0)
    # A training that is resumed keeps its directions.
    with isolated_rng(0), torch.no_grad():
        for batch in islice(loader, math.ceil(NUM_IMAGES / loader.batch_size)):
            with recorded_tokens(model.backbone) as tokens:
                model.backbone(model.data_preprocessor(batch)['inputs'])
            for i, found in tokens.items():
                collected[i].append(found.flatten(0, 1))
    return principal_directions([torch.cat(x) for x in collected.values()], args.width)


def check_resumed(args: argparse.Namespace) -> None:
    """Raise if a training to be resumed is of other blocks or another checkpoint.

    A training that starts anew leaves no older checkpoint to be resumed in its place.
    """
    note, last = (args.work_dir / 'training' / n for n in ('made_of.json', LAST))
    file, name = Path(args.checkpoint), args.checkpoint.encode()
    content = file.read_bytes() if file.is_file() else name  # a URL
    made_of = dict(checkpoint=hashlib.sha256(content).hexdigest()[:16])
    made_of |= dict(blocks=args.blocks, width=args.width)
    if args.resume and last.is_file():
        known = (
            json.loads(note.read_text()) if note.is_file() else 'of an older version'
        )
        allowed = f'False, as the training in {note.parent} is {known}, this {made_of}'
        check(known == made_of, '--resume', True, allowed)
    else:
        last.unlink(missing_ok=True)
        note.parent.mkdir(exist_ok=True)
        write_json(note, made_of)


def write_config(
    cfg: Config, arch: dict, places: list[int], args: argparse.Namespace
) -> Config:
    """Write the config of the fast anchor alone, and return it."""
    from mmengine.config import Config

    path, checkpoint = args.work_dir / 'fast.py', str(args.work_dir / 'fast.pth')
    init_cfg = dict(type='Pretrained', checkpoint=checkpoint, prefix='backbone.')
    backbone, slow, depth = dict(arch=arch), cfg.model.backbone, places[-1] + 1
    backbone['init_cfg'] = init_cfg
    maps = slow.get('out_indices')
    if maps is not None:  # of the first blocks that stand for these, or for later ones
        maps = [next(i for i, p in enumerate(places) if p >= j % depth) for j in maps]
        backbone['out_indices'] = tuple(maps)
    if args.blocks is not None and (old := slow.get('global_blocks')):
        kept = tuple(n for n, block in enumerate(args.blocks) if block in old)
        wanted = f'some with one of {tuple(old)}, which attend among all tokens'
        check(kept, '--blocks', args.blocks, wanted)
        backbone['global_blocks'] = kept
    if 'frozen_stages' in slow:
        backbone['frozen_stages'] = -1  # what was cut has to adapt
    model = dict(backbone=backbone)
    if args.width is not None:
        model |= narrow_readers(cfg.model, args.width)
    fast = deepcopy(cfg)
    fast.model.backbone.pop('arch')
    fast.model.backbone.pop('init_cfg', None)
    fast.merge_from_dict(dict(model=model))
    for value in (arch, init_cfg):
        value['_delete_'] = True
    changes = dict(_base_=[osp.relpath(args.config, args.work_dir)], model=model)
    made = f'# A fast anchor made of that of {osp.basename(args.config)} by '
    made += f'tools/make_fast_anchor.py.\n{Config(changes).pretty_text}'
    path.write_text(made)
    return fast


def narrow_readers(model: Config, width: int) -> dict:
    """Return configs of the parts that read a backbone, for maps of a width."""

    def narrow(part: dict | list) -> dict | list:
        if isinstance(part, list):  # a config replaces lists as a whole
            return [dict(each, **narrow(each)) for each in part]
        if 'anchor_heads' in part:  # of a StitchedClsHead
            return dict(anchor_heads=narrow(part['anchor_heads']))
        old = part.get('in_channels')
        check(old is not None, 'in_channels', old, f'some, of the {part.get("type")}')
        new = [width] * len(old) if isinstance(old, Sequence) else width
        return dict(in_channels=new)

    # A neck without widths, such as a pooling, passes them on.
    has_neck = 'in_channels' in (model.get('neck') or {})
    names = ['neck'] if has_neck else ['decode_head', 'head', 'auxiliary_head']
    return {n: narrow(model[n]) for n in names if model.get(n) is not None}


def has_classes(model: dict) -> bool:
    """Return whether a model's head gives logits of classes, as no detector's does."""
    head = model.get('decode_head') or model.get('head') or {}
    return bool((head[-1] if isinstance(head, list) else head).get('num_classes'))


def training_config(
    cfg: Config, fast: Config, places: list[int], args: argparse.Namespace
) -> Config:
    """Return the config that trains the fast anchor with the slow one as teacher."""
    from mmengine.config import Config
    from mmengine.runner import find_latest_checkpoint

    from snnet_mm.training import make_safe
    from snnet_mm.utils import set_length

    cfg, student = deepcopy(cfg), deepcopy(fast.model)
    student.backbone.init_cfg = None
    teacher = deepcopy(cfg.model)
    teacher.backbone.init_cfg = None
    cfg.model = dict(
        type='FastAnchorWrapper',
        model=student,
        teacher=teacher,
        teacher_checkpoint=args.checkpoint,
        places=places,
        labels=not args.no_labels,
        logits_weight=0.1 if has_classes(cfg.model) else 0,
    )
    if args.width is not None:
        cfg.model.basis = str(args.work_dir / 'basis.pth')
    # Those of the slow anchor's config may be by epoch, or further apart.
    hook = dict(type='StitchCheckpointHook', by_epoch=False, max_keep_ckpts=1)
    hook['interval'] = math.ceil(args.iters / 10)
    cfg.default_hooks = dict(cfg.get('default_hooks') or {}, checkpoint=hook)
    falling = dict(type='CosineAnnealingLR', eta_min_ratio=0.01, by_epoch=False)
    warm_up = dict(type='LinearLR', start_factor=1e-3, end=50, by_epoch=False)
    plan = Config(dict(param_scheduler=[warm_up, dict(falling, begin=50, end=600)]))
    plan.train_cfg = dict(type='IterBasedTrainLoop', max_iters=600, val_interval=600)
    set_length(plan, args.iters)
    cfg.train_cfg, cfg.param_scheduler = plan.train_cfg, plan.param_scheduler
    cfg.work_dir = str(args.work_dir / 'training')
    interrupted = find_latest_checkpoint(cfg.work_dir) if args.resume else None
    cfg.load_from = interrupted or str(args.work_dir / 'cut.pth')
    cfg.resume = interrupted is not None
    make_safe(cfg)
    return cfg


def train(cfg: Config, path: Path, verbose: bool) -> None:
    """Train the fast anchor, and write the weights of its last checkpoint.

    They have the names of the model alone, and are averaged ones with an ``EMAHook``.
    """
    from mmengine.runner import find_latest_checkpoint

    from snnet_mm.anchors.pretrained import read_weights
    from snnet_mm.training import build_runner

    build_runner(cfg, 'train', verbose).train()
    save(path, state_dict=read_weights(find_latest_checkpoint(cfg.work_dir)))


def evaluate(
    cfg: Config, checkpoint: str | Path, name: str, verbose: bool
) -> dict[str, float]:
    """Return the test metrics of a model alone."""
    from snnet_mm.training import build_runner

    print(f'Testing the {name}', flush=True)
    cfg = deepcopy(cfg)
    cfg.model.backbone.init_cfg = None
    cfg.load_from, cfg.resume = str(checkpoint), False
    cfg.experiment_name = f'{Path(cfg.work_dir).name}_{name}'
    metrics = build_runner(cfg, 'test', verbose).test()
    return {k: float(v) for k, v in metrics.items()}


def main() -> None:
    args = parse_args()

    from mmengine.registry import MODELS

    from snnet_mm.models import model_config
    from snnet_mm.training import train_in_half_precision
    from snnet_mm.utils import guard_checkpoints, load_config

    cfg = load_config(args.config, args.cfg_options)
    train_in_half_precision(cfg, args.amp)
    check_writable(args.work_dir, 'option: --work-dir')
    first, last = args.work_dir / 'cut.pth', args.work_dir / 'fast.pth'
    with guard_checkpoints():
        arch, places, weights = cut(cfg, args)
        check_resumed(args)
        fast = write_config(cfg, arch, places, args)
        student = MODELS.build(model_config(fast))
        student.load_state_dict(weights, strict=False)  # a narrow one has a new head
        save(first, state_dict=student.state_dict())
        train(training_config(cfg, fast, places, args), last, args.verbose)
        fast.work_dir = cfg.work_dir = str(args.work_dir)
        networks = {'slow anchor': (cfg, args.checkpoint), 'cut': (fast, first)}
        networks['trained'] = fast, last
        metrics = {n: evaluate(*of, n, args.verbose) for n, of in networks.items()}
    write_json(args.work_dir / 'fast_anchor.json', metrics)
    table = Table('network', *metrics['trained'])
    for name, found in metrics.items():
        table.add_row(name, *(f'{value:.2f}' for value in found.values()))
    Console().print(table)
    print(f'Wrote {args.work_dir / "fast.py"} and {last}')


if __name__ == '__main__':
    run_command(main)
