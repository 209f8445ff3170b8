"""A stitched config from two trained models."""

import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import torch
from mmengine.config import Config
from mmengine.model import BaseModule, revert_sync_batchnorm
from mmengine.registry import MODELS, DefaultScope
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import Anchor, check_tokens_correspond
from snnet_mm.anchors.mm_backbones import FITTING, anchor_model
from snnet_mm.costs import cost_table, whole_model_cost
from snnet_mm.stitching import CostTable
from snnet_mm.tasks import import_parts_for, known_scopes, task_of
from snnet_mm.utils import (
    atomic_path,
    check,
    is_number,
    load_config,
    load_fitting,
    load_weights_only,
)
from snnet_mm.utils.configs import dicts_in, model_config
from snnet_mm.utils.timm_models import origin_of

from .convert import imports_of

Size = tuple[int, int]
_WHY = dict(
    model='Both anchors, and neck and heads of the slow model, start from the trained '
    'ones, which\n# a file beside this one holds; least squares fits the stitching '
    'layers.',
    load_from='Not init_cfg: this kind of model starts parts anew after that. To go on '
    'with --resume,\n# add --cfg-options load_from=None.',
    optim_wrapper="A third of the slow model's rate: at all of it the stitched "
    'training destroys the\n# slow anchor.',
    default_hooks='Fit the stitching layers; draw a stitch for every iteration.',
    find_unused_parameters='An iteration trains one stitch; other blocks get no '
    'gradient.',
    val_cfg='The anchors alone; tools/test.py --stitch-id all tests every stitch.',
    sync_bn='As in the backbone before.',
)


class TrainedModel(NamedTuple):
    """A trained model on an anchor of ours; ``facts`` are what a pair has in common."""

    config: str
    checkpoint: str
    cfg: Config
    model: dict
    weights: dict[str, Tensor]
    anchor: Anchor
    flops: int
    facts: dict[str, Any]

    @property
    def backbone(self) -> dict:
        """Config of the anchor, as one of a stitched backbone."""
        alone = ('init_cfg', 'out', 'out_indices', 'pretrained', 'with_cls')
        return {k: v for k, v in self.model['backbone'].items() if k not in alone}


def stitch_models(
    a: tuple[str, str],
    b: tuple[str, str],
    out: str | os.PathLike,
    input_size: Size | None = None,
) -> tuple[TrainedModel, TrainedModel, CostTable]:
    """Write a config that stitches two trained models, and the weights it starts from.

    The config has the neck, heads, data and schedule of the slower one; the weights are
    beside it, with the suffix ``.pth``.

    Args:
        a: Config and checkpoint of a model.
        b: Those of the other.
        out: The config to write.
        input_size: Height and width that costs are counted at; by default those that
            the data preprocessor, or the anchor of a classifier, is for.

    Returns:
        The fast model, the slow one, and the costs of all stitches.

    Raises:
        ValueError: If the models differ in what stitching needs alike; the message
            names the config key.

    Examples:
        >>> stitch_models(('a.py', 'a.pth'), ('b.py', 'b.pth'), 'stitched.py')
    """
    out = Path(out)
    check(out.suffix == '.py', '--out', str(out), 'a name that ends in .py')
    pair = [read_trained(*model, input_size) for model in (a, b)]
    fast, slow = sorted(pair, key=lambda model: model.flops)
    for key, value in slow.facts.items():
        wanted = f'what {slow.config} has, {value!r}'
        check(fast.facts[key] == value, key, fast.facts[key], wanted)
    check_tokens_correspond(fast.anchor, slow.anchor)
    model, weights = _stitched(fast, slow)
    built, file = _build(slow.cfg, model), out.with_suffix('.pth')
    built.load_state_dict(weights, strict=False)
    costs = cost_table(built, input_size)
    later = type(built).init_weights is not BaseModule.init_weights
    if not later:
        model['init_cfg'] = dict(type='Pretrained', checkpoint=str(file))
    changes = _changes(slow.cfg, model, costs, input_size)
    networks = [model_config(anchor.cfg).backbone for anchor in (fast, slow)]
    changes['weights_origin'] = [origin_of(network) for network in networks]
    if later:
        changes['load_from'] = str(file)
    with atomic_path(file) as temporary:
        meta = dict(fast=fast.checkpoint, slow=slow.checkpoint)
        torch.save(dict(state_dict=weights, meta=meta), temporary)
    _write(out, fast, slow, changes)
    return fast, slow, costs


def read_trained(
    config: str, checkpoint: str, input_size: Size | None = None
) -> TrainedModel:
    """Read a trained model; on an anchor of ours it must have equal outputs."""
    cfg = Config(load_config(config).to_dict())
    scope, loaded = cfg.get('default_scope'), load_weights_only(checkpoint)
    check(scope in known_scopes(), 'default_scope', scope, known_scopes())
    import_parts_for(cfg)
    before = model_config(cfg)
    theirs = _build(cfg, before)
    load_fitting(theirs, loaded, checkpoint)
    model, weights, anchor = anchor_model(before, theirs)
    ours = _build(cfg, model)
    ours.load_state_dict(weights, strict=False)
    # Classifiers see images of the size that they are built for.
    sizes = [getattr(part, 'size', None) for part in ours.data_preprocessor.modules()]
    sizes = [input_size, *sizes, anchor.input_size if 'head' in model else None]
    size = next(filter(None, sizes), None)
    wanted = 'height and width of images, which no preprocessor pads to a size'
    check(size, '--shape', size, wanted)
    _check_equal(theirs, ours, size)
    facts = _facts(cfg, model, ours, loaded.get('meta') or {})
    flops = whole_model_cost(anchor, size)[0].flops
    return TrainedModel(config, checkpoint, cfg, model, weights, anchor, flops, facts)


def _build(cfg: Config, model: Mapping) -> nn.Module:
    with DefaultScope.overwrite_default_scope(cfg.default_scope):
        built = revert_sync_batchnorm(MODELS.build(deepcopy(dict(model))))
    built.eval()
    return built


@torch.no_grad()
def _check_equal(theirs: nn.Module, ours: nn.Module, size: Size) -> None:
    images = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(0))
    run = [m if hasattr(m, 'head') else m.extract_feat for m in (theirs, ours)]
    kind = type(theirs.backbone).__name__
    for a, b in zip(*(tree_leaves(f(images)) for f in run), strict=True):
        alike = a.shape == b.shape and (a - b).abs().max() <= 1e-4 * a.abs().max()
        check(alike, 'model.backbone', kind, FITTING.get(kind, 'one with a known head'))


def _facts(
    cfg: Config, model: Mapping, ours: nn.Module, meta: Mapping
) -> dict[str, Any]:
    data = (cfg.get('train_dataloader') or {}).get('dataset', {})
    while 'dataset' in data:
        data = data['dataset']
    root = os.path.normpath(data.get('data_root') or '.')
    files = [data.get('of', data.get('type')), root, data.get('ann_file')]
    images = model['data_preprocessor']
    colours = 'mean', 'std', 'bgr_to_rgb', 'to_rgb'
    heads = {k: v for k, v in model.items() if k.endswith('head')}
    counts = {node['num_classes'] for node in dicts_in(heads) if 'num_classes' in node}
    return {
        'model.type': task_of(ours).name,
        'num_classes': sorted(counts),
        'train_dataloader.dataset': files,
        'classes': (meta.get('dataset_meta') or {}).get('classes'),
        'data_preprocessor': {k: v for k, v in images.items() if k in colours},
    }


def _stitched(fast: TrainedModel, slow: TrainedModel) -> tuple[dict, dict[str, Tensor]]:
    """Config and weights of the stitched model, but for its stitching layers."""
    pair, model = (fast, slow), deepcopy(slow.model)
    outer, classifies = model['backbone'], 'head' in model
    kept = {k: outer[k] for k in ('out', 'out_indices', 'with_cls') if k in outer}
    backbone = dict(type='SNNetv1', anchors=[m.backbone for m in pair], **kept)
    if all(len(m.anchor.stages) == 1 for m in pair):
        rank = min(16, *(width for m in pair for width in m.anchor.block_dims))
        layer = dict(type='LoRAStitchingLayer', rank=rank)
        backbone |= dict(type='SNNetv2', stitching_layer=layer)
    model['backbone'] = deepcopy(backbone)
    if classifies:
        heads = [m.model['head']['anchor_heads'][0] for m in pair]
        model['head']['anchor_heads'] = [dict(h, init_cfg=None) for h in heads]
    weights = {}
    for i, m in enumerate(pair):
        for key, value in m.weights.items():
            if key.startswith('backbone.'):
                key = key.replace('backbone.', f'backbone.anchors.{i}.', 1)
            elif classifies:
                key = key.replace('anchor_heads.0.', f'anchor_heads.{i}.', 1)
            elif m is fast:
                continue
            weights[key] = value
    return model, weights


def _changes(
    cfg: Config, model: dict, costs: CostTable, input_size: Size | None
) -> dict[str, Any]:
    """Find what a stitched config changes in the slow one, by top-level key."""
    # A twelfth of the range, in round numbers.
    step = float(f'{(costs[1].flops - costs[0].flops) / 12:.1g}')
    different = 'two models of different FLOPs'
    check(step > 0, 'model.backbone', f'{costs[0].flops} FLOPs twice', different)
    sized = {} if input_size is None else dict(input_size=tuple(input_size))
    sampler = dict(type='ResourceConstrainedSampler', step=step)
    changes = dict(
        custom_imports=dict(imports=imports_of(cfg)),
        model=dict(_delete_=True, **model),
        optim_wrapper=_slower(cfg.optim_wrapper),
        default_hooks=dict(
            stitch_init=dict(type='StitchInitHook', num_images=100),
            stitch_sampling=dict(type='StitchSamplingHook', sampler=sampler, **sized),
            stitch_report=dict(type='StitchReportHook'),
            stitch_statistics=dict(type='StitchStatisticsHook', num_images=200),
        ),
        find_unused_parameters=True,
    )
    loops = dict(val_cfg={'type': 'StitchValLoop'})
    loops['test_cfg'] = dict(type='StitchTestLoop', **sized)
    for name in (name for name in loops if cfg.get(name) is not None):
        changes[name] = dict(_delete_=True, stitches='anchors', **loops[name])
    if 'SyncBN' in str(cfg.model.get('backbone')):
        changes['sync_bn'] = 'torch'
    own = dict(load_from=None, resume=False, work_dir=None)
    return changes | {k: v for k, v in own.items() if cfg.get(k)}


def _slower(optim_wrapper: Mapping) -> dict:
    """A third of the learning rate, and mm's layer-wise decay for all anchors."""
    lr = optim_wrapper.get('optimizer', {}).get('lr')
    check(is_number(lr), 'optim_wrapper.optimizer.lr', lr, 'a learning rate')
    change: dict[str, Any] = dict(optimizer=dict(lr=float(f'{lr / 3:.3g}')))
    paramwise = optim_wrapper.get('paramwise_cfg') or {}
    for key in {'decay_rate', 'layer_decay_rate'} & set(paramwise):
        rates = dict(_delete_=True, decay_rates=paramwise[key])
        change |= dict(constructor='AnchorLayerDecayConstructor', paramwise_cfg=rates)
    return change


def _write(
    out: Path, fast: TrainedModel, slow: TrainedModel, changes: Mapping[str, Any]
) -> None:
    """Write the config of the slow model with changes, and why they are made."""
    text = '# Two trained models, stitched by tools/stitch_models.py:\n'
    for name, m in (('fast', fast), ('slow', slow)):
        cost = f'backbone {m.flops / 1e9:.3g} GFLOPs'
        text += f'# {name}: {m.config}, {m.checkpoint}, {cost}\n'
    cfg = Config(slow.cfg.to_dict())
    cfg.merge_from_dict(deepcopy(dict(changes)))
    for key, value in cfg.to_dict().items():
        if key in changes and value is not None and key in _WHY:
            text += f'# {_WHY[key]}\n'
        text += Config({key: value}).pretty_text.strip() + '\n'
    out.write_text(text)
