"""Distil a trained network into a smaller one made of some of its blocks."""

import json
import math
import os
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import find_latest_checkpoint
from torch import Tensor

from snnet_mm.anchors import PlainViT, keep_blocks, map_embedding
from snnet_mm.anchors.pretrained import read_weights
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import ElasticBackbone, StitchingLayer, fit_in_turn
from snnet_mm.training import build_runner
from snnet_mm.utils import (
    atomic_path,
    check,
    check_writable,
    digest,
    guard_checkpoints,
    load_config,
    make_safe,
    model_config,
    set_length,
    train_in_half_precision,
    write_json,
)
from snnet_mm.utils.checkpoints import check_local

from .images import ImageBatches

NUM_IMAGES = 64  # for fitting the maps
LAST = 'last_checkpoint'  # mmengine's file with the path of the last checkpoint


@dataclass
class Options:
    """Settings of :func:`make_fast_anchor` that its steps share."""

    checkpoint: str
    work_dir: Path
    every: int
    blocks: list[int] | None
    iters: int
    labels: bool
    resume: bool


def make_fast_anchor(
    config: str | os.PathLike,
    checkpoint: str | os.PathLike,
    work_dir: str | os.PathLike,
    every: int = 2,
    blocks: Sequence[int] | None = None,
    iters: int = 300,
    labels: bool = True,
    amp: bool = False,
    resume: bool = False,
    cfg_options: dict | None = None,
    verbose: bool = False,
) -> dict[str, dict[str, float]]:
    """Make a fast anchor from a slow one.

    Replaces runs of blocks by affine maps, fitted in turn by least squares as in
    :func:`make_elastic`. Then distils the slow anchor into this chain on the training
    images of the config. ``work_dir`` receives ``fast.py``, the config of the fast
    anchor alone, ``fast.pth``, its weights, and ``fast_anchor.json``, the metrics.

    Args:
        config: Config of the slow anchor alone, a ``PlainViT`` in any mm model.
        checkpoint: Its checkpoint.
        work_dir: Output folder.
        every: Keep every n-th block.
        blocks: Blocks to keep, instead of ``every``.
        iters: Training iterations.
        labels: Whether training also uses the labels.
        amp: Whether to train in mixed precision.
        resume: Whether to resume an interrupted training.
        cfg_options: Settings to override in the config.
        verbose: Whether to show mmengine's full log.

    Returns:
        Test metrics of the slow anchor, the chain before training and the trained
        network, under the keys ``'slow anchor'``, ``'chain'`` and ``'trained'``.

    Raises:
        ValueError: If the model or a setting is unsuitable; the message names the value
            and the option.

    Examples:
        >>> metrics = make_fast_anchor('vit.py', 'vit.pth', 'work_dirs/fast', iters=600)
        >>> metrics['trained']['mIoU']
    """
    check_local(checkpoint)
    check(iters > 1, '--iters', iters, '2 or more')
    check(every > 1, '--every', every, '2 or more')
    kept = None if blocks is None else list(blocks)
    options = Options(
        *(str(checkpoint), Path(work_dir)),
        *(every, kept, iters, labels, resume),
    )
    cfg = load_config(config, cfg_options)
    training = deepcopy(cfg)
    train_in_half_precision(training, amp)
    folder = check_writable(options.work_dir, 'option: --work-dir')
    first, last = folder / 'chain.pth', folder / 'fast.pth'
    with guard_checkpoints():
        settings, places, weights = _chain(cfg, options)
        _check_resumed(options)
        fast = _write_config(cfg, settings, places, options)
        student = MODELS.build(model_config(fast))
        student.load_state_dict(weights)
        _save(first, state_dict=student.state_dict())
        _train(_training_config(training, fast, places, options), last, verbose)
        fast.work_dir = cfg.work_dir = str(folder)
        networks = {'slow anchor': (cfg, checkpoint), 'chain': (fast, first)}
        networks['trained'] = fast, last
        metrics = {n: _evaluate(*of, n, verbose) for n, of in networks.items()}
    write_json(folder / 'fast_anchor.json', metrics)
    return metrics


def _save(path: Path, **content: object) -> None:
    with atomic_path(path) as temporary:
        torch.save(content, temporary)


def _chain(cfg: Config, options: Options) -> tuple[dict, list[int], dict]:
    """Fit a chain; return its backbone settings, places and weights.

    The places are the slow anchor's blocks that the chain's blocks learn to match.
    """
    model = init_model(cfg, options.checkpoint, device='cpu')
    anchor, prefix = model.backbone, 'backbone.'
    check(type(anchor) is PlainViT, 'backbone.type', type(anchor).__name__, 'PlainViT')
    gaps = cfg.model.backbone.get('gaps', ())
    check(not gaps, 'backbone.gaps', gaps, 'none: a network with all of its blocks')
    weights, depth, (width, *_) = model.state_dict(), anchor.depth, anchor.block_dims
    heads = anchor.blocks[0].attn.num_heads
    arch = dict(embed_dims=width, depth=depth, num_heads=heads)
    arch['mlp_ratio'] = anchor.blocks[0].mlp.fc1.out_features / width
    blocks = options.blocks = options.blocks or list(range(0, depth, options.every))
    own, arch['depth'] = keep_blocks(anchor.state_dict(), blocks), len(blocks)
    maps = _fit_gaps(anchor, blocks, ImageBatches(cfg, model, NUM_IMAGES))
    if (front := maps.pop(-1, None)) is not None:
        own = map_embedding(own, front.weight, front.bias)
    numbers = {blocks.index(block): layer for block, layer in maps.items()}
    for number, layer in numbers.items():
        for name, value in layer.state_dict().items():
            own[f'blocks.{number}.gap.{name}'] = value
    settings = dict(arch=arch, gaps=tuple(numbers))
    if depth - 1 not in blocks:  # the last map includes the final norm
        settings['final_norm'] = False
        own = {k: v for k, v in own.items() if not k.startswith('norm.')}
    places = [*(b - 1 for b in blocks[1:]), depth - 1]
    rest = {k: v for k, v in weights.items() if not k.startswith(prefix)}
    return settings, places, rest | {prefix + k: v for k, v in own.items()}


def _fit_gaps(
    anchor: PlainViT, blocks: list[int], batches: Iterable[Tensor]
) -> dict[int, StitchingLayer]:
    """Return each gap's map, keyed by the block before it; -1 is the embedding."""
    layer = dict(type='StitchingLayer')
    backbone = ElasticBackbone([anchor], [blocks], layer, out='end')
    fit_in_turn(backbone, batches)
    layers = backbone.space.layers
    return {
        layers[name].source.block: backbone.stitching_layers[name].requires_grad_(False)
        for name in backbone.space[1].layers
    }


def _check_resumed(options: Options) -> None:
    """Raise if the training to resume used other blocks or another checkpoint.

    If training starts from scratch, remove mmengine's record of the last checkpoint, so
    that no later call resumes an older training.
    """
    note, last = (options.work_dir / 'training' / n for n in ('made_of.json', LAST))
    content = Path(options.checkpoint).expanduser().read_bytes()
    made_of = dict(checkpoint=digest([content]), blocks=options.blocks)
    if options.resume and last.is_file():
        known = (
            json.loads(note.read_text()) if note.is_file() else 'of an older version'
        )
        allowed = f'False, as the training in {note.parent} is {known}, this {made_of}'
        check(known == made_of, '--resume', True, allowed)
    else:
        last.unlink(missing_ok=True)
        note.parent.mkdir(exist_ok=True)
        write_json(note, made_of)


def _write_config(
    cfg: Config, settings: dict, places: list[int], options: Options
) -> Config:
    """Write the config of the fast anchor alone, and return it."""
    path, checkpoint = options.work_dir / 'fast.py', str(options.work_dir / 'fast.pth')
    init_cfg = dict(type='Pretrained', checkpoint=checkpoint, prefix='backbone.')
    slow, depth = cfg.model.backbone, places[-1] + 1
    backbone = dict(settings, init_cfg=init_cfg)
    maps = slow.get('out_indices')
    if maps is not None:  # the first kept blocks whose places reach these
        maps = [next(i for i, p in enumerate(places) if p >= j % depth) for j in maps]
        backbone['out_indices'] = tuple(maps)
    if old := slow.get('global_blocks'):
        kept = tuple(n for n, block in enumerate(options.blocks) if block in old)
        wanted = f'some with one of {tuple(old)}, which attend among all tokens'
        check(kept, '--blocks', options.blocks, wanted)
        backbone['global_blocks'] = kept
    if 'frozen_stages' in slow:
        backbone['frozen_stages'] = -1  # the chain has to adapt
    fast = deepcopy(cfg)
    fast.model.backbone.pop('arch')
    fast.model.backbone.pop('init_cfg', None)
    fast.merge_from_dict(dict(model=dict(backbone=backbone)))
    with atomic_path(path) as temporary:
        fast.dump(temporary)
    return fast


def _has_classes(model: dict) -> bool:
    """Return whether a model's head returns class logits; a detector's does not."""
    head = model.get('decode_head') or model.get('head') or {}
    return bool((head[-1] if isinstance(head, list) else head).get('num_classes'))


def _training_config(
    cfg: Config, fast: Config, places: list[int], options: Options
) -> Config:
    """Return the config that trains the fast anchor with the slow one as teacher."""
    cfg, student = deepcopy(cfg), deepcopy(fast.model)
    student.backbone.init_cfg = None
    teacher = deepcopy(cfg.model)
    teacher.backbone.init_cfg = None
    cfg.model = dict(
        type='FastAnchorWrapper',
        model=student,
        teacher=teacher,
        teacher_checkpoint=options.checkpoint,
        places=places,
        labels=options.labels,
        logits_weight=0.1 if _has_classes(cfg.model) else 0,
    )
    # The slow anchor's config may save checkpoints by epoch, or less often.
    hook = dict(type='StitchCheckpointHook', by_epoch=False, max_keep_ckpts=1)
    hook['interval'] = math.ceil(options.iters / 10)
    cfg.default_hooks = dict(cfg.get('default_hooks') or {}, checkpoint=hook)
    falling = dict(type='CosineAnnealingLR', eta_min_ratio=0.01, by_epoch=False)
    warm_up = dict(type='LinearLR', start_factor=1e-3, end=50, by_epoch=False)
    plan = Config(dict(param_scheduler=[warm_up, dict(falling, begin=50, end=600)]))
    plan.train_cfg = dict(type='IterBasedTrainLoop', max_iters=600, val_interval=600)
    set_length(plan, options.iters)
    cfg.train_cfg, cfg.param_scheduler = plan.train_cfg, plan.param_scheduler
    cfg.work_dir = str(options.work_dir / 'training')
    interrupted = find_latest_checkpoint(cfg.work_dir) if options.resume else None
    cfg.load_from = interrupted or str(options.work_dir / 'chain.pth')
    cfg.resume = interrupted is not None
    cfg.custom_hooks = []  # of the slow anchor's training; an EMA would undo this one
    make_safe(cfg)
    return cfg


def _train(cfg: Config, path: Path, verbose: bool) -> None:
    """Train the fast anchor, and write the weights of its last checkpoint.

    Weights have the names of the unwrapped model.
    """
    build_runner(cfg, 'train', verbose).train()
    _save(path, state_dict=read_weights(find_latest_checkpoint(cfg.work_dir)))


def _evaluate(
    cfg: Config, checkpoint: str | Path, name: str, verbose: bool
) -> dict[str, float]:
    """Test a model, and return its metrics."""
    print(f'Testing the {name}', flush=True)
    cfg = deepcopy(cfg)
    cfg.model.backbone.init_cfg = None
    cfg.load_from, cfg.resume = str(checkpoint), False
    cfg.experiment_name = f'{Path(cfg.work_dir).name}_{name}'
    metrics = build_runner(cfg, 'test', verbose).test()
    return {k: float(v) for k, v in metrics.items()}
