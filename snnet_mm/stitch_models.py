"""Write a stitched config from two trained models."""

import os
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import cv2
import numpy as np
import torch
from mmengine.config import Config
from mmengine.model import BaseModule
from mmengine.registry import TRANSFORMS
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from snnet_mm.anchors import Anchor, check_tokens_correspond, image_channels
from snnet_mm.costs import (
    cost_table,
    preprocessed_size,
    size_name,
    whole_model_cost,
)
from snnet_mm.costs.sizes import Size
from snnet_mm.exports.normalization import pipeline_of
from snnet_mm.models.init_model import init_model
from snnet_mm.stitching import StitchTable
from snnet_mm.tasks import known_scopes, task_of
from snnet_mm.training.config import layer_decay
from snnet_mm.utils import (
    atomic_path,
    check,
    dicts_in,
    is_number,
    isolated_rng,
    load_config,
)
from snnet_mm.utils.base_checkpoint import with_prefixes
from snnet_mm.utils.configs import innermost, model_config, step_name, write_config
from snnet_mm.utils.registered_names import check_named
from snnet_mm.utils.timm_models import origin_of

from .elastic.convert import (
    build_model,
    check_equal,
    elastic_backbone,
    elastic_model,
    imports_of,
    renames_of,
)

NOISE = 600, 800  # size of the image that pipelines are compared on
HEADER = """# Two trained models, stitched by tools/stitch_models.py:
# fast: {}
# slow: {}
# Both anchors, and neck and heads of the slow model, start from the trained weights,
# which a file beside this one holds. Least squares fits the stitching layers; then
# each iteration trains one stitch, at a third of the slow model's rate: at the full
# rate, training destroys the slow anchor. With load_from, init_cfg would initialise
# parts again: to go on with --resume, add --cfg-options load_from=None.
"""


class TrainedModel(NamedTuple):
    """A trained model and its anchor; both models of a pair need equal ``facts``."""

    config: str
    checkpoint: str
    cfg: Config
    model: dict
    backbone: dict  # config that runs the anchor block by block
    weights: dict[str, Tensor]  # of the model with this backbone
    anchor: Anchor
    size: Size  # at which costs are counted
    flops: int
    facts: dict[str, Any]
    images: Tensor  # what its network gets for an image file


def stitch_models(
    a: tuple[str, str],
    b: tuple[str, str],
    out: str | os.PathLike,
    input_size: Size | None = None,
) -> tuple[TrainedModel, TrainedModel, StitchTable]:
    """Write a config that stitches two trained models, and its initial weights.

    The config has the neck, heads, data and schedule of the slower model. The weights
    have the same file name with the suffix ``.pth``.

    Args:
        a: Config and checkpoint of one model.
        b: Config and checkpoint of the other model.
        out: The config to write.
        input_size: Height and width at which costs are counted. Default: the size of
            the data preprocessor, or for classifiers of the backbone, or 224x224.

    Returns:
        The fast model, the slow one, and the costs of all stitches.

    Raises:
        ValueError: If a setting that must match differs between the models; the message
            names the config key.

    Examples:
        >>> stitch_models(('a.py', 'a.pth'), ('b.py', 'b.pth'), 'stitched.py')
    """
    out = Path(out)
    check(out.suffix == '.py', '--out', str(out), 'a name that ends in .py')
    pair = [read_trained(*model, input_size) for model in (a, b)]
    fast, slow = sorted(pair, key=lambda model: model.flops)
    for key, value in slow.facts.items():
        expected = f'{value!r}, as in {slow.config}'
        check(fast.facts[key] == value, key, fast.facts[key], expected)
    _check_images(fast, slow)
    check_tokens_correspond(fast.anchor, slow.anchor)
    model, weights = _stitched(fast, slow)
    built, file = build_model(slow.cfg, model), out.with_suffix('.pth')
    built.load_state_dict(weights, strict=False)
    weights = built.state_dict()  # mmengine warns of a checkpoint that lacks any
    costs = cost_table(built, slow.size)
    own_init = type(built).init_weights is not BaseModule.init_weights
    if not own_init:
        model['init_cfg'] = dict(type='Pretrained', checkpoint=str(file))
    changes = _changes(slow.cfg, model, costs, input_size)
    networks = [anchor.model['backbone'] for anchor in (fast, slow)]
    changes['weights_origin'] = [origin_of(network) for network in networks]
    if own_init:
        changes['load_from'] = str(file)
    with atomic_path(file) as temporary:
        meta = dict(fast=fast.checkpoint, slow=slow.checkpoint)
        torch.save(dict(state_dict=weights, meta=meta), temporary)
    _write(out, fast, slow, changes)
    return fast, slow, costs


def read_trained(
    config: str, checkpoint: str, input_size: Size | None = None
) -> TrainedModel:
    """Read a trained model; check that it runs block by block with equal features."""
    check_named(cfg := load_config(config))
    cfg = Config(cfg.to_dict())
    scope = cfg.get('default_scope')
    check(scope in known_scopes(), 'default_scope', scope, known_scopes())
    net = init_model(cfg, checkpoint, device='cpu')
    elastic = elastic_model(net)
    (anchor,) = elastic.backbone.anchors
    model, size = model_config(cfg), input_size
    if size is None and task_of(net).name == 'classification':
        # The preprocessor pads nothing.
        patches = getattr(net.backbone, 'patch_embed', None)
        size = getattr(patches, 'init_input_size', anchor.input_size) or (224, 224)
    size = tuple(size or preprocessed_size(net))
    shape = 1, image_channels(elastic), *size
    images = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    check_equal(net, elastic, images)
    places = elastic.backbone.out_indices
    backbone = dict(elastic_backbone(cfg, net), out_indices=places)
    flops = whole_model_cost(anchor, size)[0].flops
    weights = with_prefixes(net.state_dict(), renames_of(net))
    read = cfg, model, backbone, weights, anchor, size, flops
    facts = _facts(cfg, model, backbone, net)
    return TrainedModel(config, checkpoint, *read, facts, _images_of(cfg, net))


def _facts(
    cfg: Config, model: Mapping, backbone: Mapping, net: nn.Module
) -> dict[str, Any]:
    loader = cfg.get('train_dataloader')
    data = innermost(loader.dataset) if loader else {}
    root = os.path.normpath(data.get('data_root') or '.')
    files = [data.get('of', data.get('type')), root, data.get('ann_file')]
    heads = {k: v for k, v in model.items() if k.endswith('head')}
    counts = {node['num_classes'] for node in dicts_in(heads) if 'num_classes' in node}
    return {
        'model.type': task_of(net).name,
        'backbone.out': backbone.get('out', 'maps'),
        'num_classes': sorted(counts),
        'train_dataloader.dataset': files,
        'classes': net.dataset_meta['classes'],
    }


def _images_of(cfg: Config, net: nn.Module) -> Tensor:
    """Return the tensor that a network gets for an image of noise.

    Test pipeline and data preprocessor run. Loaders of formats other than PNG do not.
    """
    channels, pipeline = image_channels(net), pipeline_of(cfg)
    noise = np.random.default_rng(0).integers(0, 256, (*NOISE, channels), np.uint8)
    results = dict(img=noise, img_shape=NOISE, ori_shape=NOISE)
    with TemporaryDirectory() as folder, isolated_rng(0):
        for step in pipeline:
            name = step_name(step)
            if name == 'LoadImageFromFile' and channels in (1, 3, 4):
                results = dict(img_path=str(Path(folder, 'noise.png')))
                cv2.imwrite(results['img_path'], noise)
            elif name.startswith(('Load', 'Pack')):
                continue
            results = TRANSFORMS.build(step)(results)
    image = np.ascontiguousarray(results['img'])
    image = image[..., None] if image.ndim == 2 else image
    inputs = [torch.from_numpy(image).permute(2, 0, 1)]
    data = dict(inputs=inputs, data_samples=[BaseDataElement()])
    return net.data_preprocessor(data, False)['inputs'].float()


def _check_images(fast: TrainedModel, slow: TrainedModel) -> None:
    """Raise unless both networks get equal tensors for an image."""
    pair = fast.images, slow.images
    sizes = [size_name(images.shape[2:]) for images in pair]
    found = f'{fast.config} gives its network an image of {sizes[0]}'
    expected = f'one of {sizes[1]}, as in {slow.config}'
    same = pair[0].shape == pair[1].shape
    if same:
        apart = (pair[0] - pair[1]).abs().max().item()
        found += f' whose pixels differ by up to {apart:.3g}'
        expected = f'the pixels of {slow.config}'
        same = torch.allclose(*pair, rtol=1e-4, atol=1e-4)
    check(same, 'test_dataloader.dataset.pipeline, data_preprocessor', found, expected)


def _stitched(fast: TrainedModel, slow: TrainedModel) -> tuple[dict, dict[str, Tensor]]:
    """Return config and weights of the stitched model, without stitching layers."""
    pair, model = (fast, slow), deepcopy(dict(slow.model))
    anchors = [m.backbone['anchors'][0] for m in pair]
    backbone = dict(slow.backbone, type='SNNetv1', anchors=anchors)
    if all(len(m.anchor.stages) == 1 for m in pair):
        rank = min(16, *(width for m in pair for width in m.anchor.block_dims))
        layer = dict(type='LoRAStitchingLayer', rank=rank)
        backbone |= dict(type='SNNetv2', stitching_layer=layer)
    own: dict[str, str] = {}  # parts with a copy for each anchor, and its path
    if 'head' in model and backbone.get('out') == 'end':
        heads = [m.model['head']['anchor_heads'][0] for m in pair]
        model['head']['anchor_heads'] = [dict(h, init_cfg=None) for h in heads]
        own['head'] = 'anchor_heads.{}.'
    elif 'head' in model:
        backbone['maps_of'] = 'end'
        for part in ('neck', 'head'):
            if any(key.startswith(f'{part}.') for key in slow.weights):
                parts = [m.model[part] for m in pair]
                model[part] = dict(type='PartPerAnchor', parts=parts)
                own[part] = 'parts.{}.'
    model['backbone'] = deepcopy(backbone)
    if model.get('pretrained'):
        model['pretrained'] = None  # mm would pass it to the backbone
    weights = {}
    for i, m in enumerate(pair):
        for key, value in m.weights.items():
            part, _, name = key.partition('.')
            if part == 'backbone':
                key = key.replace('anchors.0.', f'anchors.{i}.', 1)
            elif part in own:
                name = name.removeprefix('anchor_heads.0.')
                key = f'{part}.{own[part].format(i)}{name}'
            elif m is fast:
                continue
            weights[key] = value
    return model, weights


def _changes(
    cfg: Config, model: dict, costs: StitchTable, input_size: Size | None
) -> dict[str, Any]:
    """Return the changes to the slow model's config, by top-level key."""
    low, high = (costs[i].flops for i in (0, 1))
    expected = 'two models with different FLOPs'
    check(low < high, 'model.backbone', f'{low} FLOPs twice', expected)
    stitched = load_config('snnet_mm::_base_/stitched.py')
    loops = dict(zip(('val_cfg', 'test_cfg'), stitched.stitch_loops, strict=True))
    if input_size is not None:
        for part in (stitched.stitch_hooks.stitch_sampling, loops['test_cfg']):
            part.input_size = tuple(input_size)
    changes = dict(
        custom_imports=dict(imports=imports_of(cfg)),
        model=dict(_delete_=True, **model),
        optim_wrapper=_slower(cfg.optim_wrapper),
        default_hooks=stitched.stitch_hooks,
        find_unused_parameters=stitched.find_unused_parameters,
    )
    for name in (name for name in loops if cfg.get(name) is not None):
        changes[name] = dict(_delete_=True, **loops[name])
    return changes | dict(load_from=None, resume=False, work_dir=None)


def _slower(optim_wrapper: Mapping) -> dict:
    """Return a third of the learning rate, and layer-wise decay for all anchors.

    Stitching layers are not slowed down by a factor for the trained backbone.
    """
    lr = optim_wrapper.get('optimizer', {}).get('lr')
    check(is_number(lr), 'optim_wrapper.optimizer.lr', lr, 'a learning rate')
    rate = dict(lr=float(f'{lr / 3:.3g}'))
    changes = dict(optimizer=rate, **layer_decay(optim_wrapper))
    factors = (optim_wrapper.get('paramwise_cfg') or {}).get('custom_keys') or {}
    if 'backbone' in factors:
        layers = dict(stitching_layers=dict(lr_mult=1.0))
        changes.setdefault('paramwise_cfg', dict(custom_keys=layers))
    return changes


def _write(
    out: Path, fast: TrainedModel, slow: TrainedModel, changes: Mapping[str, Any]
) -> None:
    """Write the slow model's config with changes."""
    cfg = Config(slow.cfg.to_dict())
    cfg.merge_from_dict(deepcopy(dict(changes)))
    models = (f'{m.config}, {m.checkpoint}' for m in (fast, slow))
    with atomic_path(out) as temporary:
        write_config(cfg, temporary, HEADER.format(*models))
