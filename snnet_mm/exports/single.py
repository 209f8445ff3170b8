"""One stitch of a stitched model as a plain mm model, with config and weights."""

import inspect
import os
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import reduce
from operator import getitem
from pathlib import Path

import torch
from mmengine.config import Config, ConfigDict
from mmengine.registry import HOOKS, MODELS, init_default_scope
from mmengine.runner import Runner
from torch import Tensor, nn

from snnet_mm.models import (
    ElasticBackbone,
    PartPerAnchor,
    SingleStitch,
    StitchBatchNorm,
    StitchedBackbone,
    find_stitched_backbone,
    set_stitch,
)
from snnet_mm.stitching import Stitch
from snnet_mm.tasks.base import Predictions
from snnet_mm.utils import atomic_path, check, load_config, load_weights_only
from snnet_mm.utils.configs import dicts_in, model_config, write_config
from snnet_mm.utils.registered_names import check_named
from snnet_mm.utils.timm_models import licence_of, origin_of

from .comparison import predict_loaded
from .normalization import graph_order, pipeline_of

TRAINING_KEYS = ('lora', 'pretrained')  # in the config of an anchor
# Config keys that mm's tools read besides the arguments of a runner.
TOOL_KEYS = ('custom_imports', 'model_wrapper_cfg', 'tta_model', 'tta_pipeline')


def single_stitch(
    cfg: Config, model: nn.Module, stitch_id: int
) -> tuple[Config, nn.Module]:
    """Build one stitch of a stitched model as a standalone model, in eval mode.

    This activates the stitch. ``exported_from`` of the new model names the stitch, its
    route and the space.

    Raises:
        ValueError: If ``config()`` of a stitching layer loses some of its weights.
    """
    set_stitch(model, stitch_id)
    exported = single_stitch_config(cfg, model)
    init_default_scope(exported.get('default_scope') or 'mmengine')
    single = MODELS.build(deepcopy(exported.model))  # DETRs modify their config
    _check_layers(find_stitched_backbone(model), single)
    state = merged_state(model)
    single.load_state_dict({name: state[name] for name in single.state_dict()})
    if hasattr(model, 'dataset_meta'):
        single.dataset_meta = model.dataset_meta
    space = find_stitched_backbone(model).space
    route = space.describe(space[stitch_id])
    single.exported_from = dict(stitch=stitch_id, route=route, space=space.fingerprint)
    single.eval()
    return exported, single


def single_stitch_config(cfg: Config, model: nn.Module) -> Config:
    """Return the config of the active stitch of a stitched model as a plain model.

    A part of the model with a method ``config_of_stitch(config, stitch)`` returns its
    own config for the stitch. Auxiliary heads, hooks with ``stitched_only = True``,
    pretrained weights and variables of the config files are dropped.
    """
    check_named(cfg)
    kept = {*inspect.signature(Runner.__init__).parameters, *TOOL_KEYS} - {'work_dir'}
    out = {k: deepcopy(v) for k, v in cfg.items() if k in kept}
    config = out['model'] = model_config(cfg)
    backbone = find_stitched_backbone(model)
    stitch = backbone.active_stitch
    # The path is not always ``backbone``: a retriever's encoder is a list.
    holder, place = _place(config, _path(model, backbone))
    holder[place] = _backbone_config(holder[place], backbone, stitch)
    done = ()  # submodules of these parts are already configured
    for name, part in model.named_modules():
        if hasattr(type(part), 'config_of_stitch') and not name.startswith(done):
            holder, place = _place(config, name.split('.'))
            holder[place] = part.config_of_stitch(holder[place], stitch)
            done += (f'{name}.',)
    config.pop('auxiliary_head', None)
    _drop_pretrained(config)
    for mode in ('val', 'test'):
        loop = out.get(f'{mode}_cfg') or {}
        kind = loop.get('type', '')
        if getattr(kind, '__name__', kind).startswith('Stitch'):
            out[f'{mode}_cfg'] = dict(type=f'{mode.capitalize()}Loop')

    def kept_hook(hook: dict | None) -> bool:
        kind = (hook or {}).get('type')
        kind = HOOKS.get(kind) if isinstance(kind, str) else kind
        return not getattr(kind, 'stitched_only', False)

    named, listed = out.get('default_hooks') or {}, out.get('custom_hooks') or []
    out['default_hooks'] = {k: hook for k, hook in named.items() if kept_hook(hook)}
    out['custom_hooks'] = [*filter(kept_hook, listed)]
    out.update(load_from=None, resume=False)
    if out.get('test_dataloader'):
        out['test_pipeline'] = pipeline_of(cfg)
    return Config(out)


def anchors_of(cfg: Config, model: nn.Module) -> list[dict]:
    """Return the name, depth, pretrained weights and their licence of every anchor.

    The root key ``weights_origin`` names the weights of anchors that were trained
    separately. Unknown weights and licences are None.
    """
    backbone = find_stitched_backbone(model)
    holder, place = _place(model_config(cfg), _path(model, backbone))
    origins = cfg.get('weights_origin') or map(origin_of, holder[place]['anchors'])
    anchors = zip(backbone.space.anchor_names, backbone.anchors, origins, strict=True)
    return [
        dict(name=name, depth=anchor.depth, weights=origin, licence=licence_of(origin))
        for name, anchor, origin in anchors
    ]


def save_single(cfg: Config, single: nn.Module, path: str | os.PathLike) -> None:
    """Write the checkpoint ``path`` of a stitch, and its config beside it."""
    path, meta = Path(path), dict(exported_from=single.exported_from)
    if hasattr(single, 'dataset_meta'):
        meta['dataset_meta'] = single.dataset_meta
    with atomic_path(path) as temporary:
        torch.save(dict(meta=meta, state_dict=single.state_dict()), temporary)
    with atomic_path(path.with_suffix('.py')) as temporary:
        write_config(cfg, temporary)


def read_single(path: Path) -> tuple[Config, nn.Module]:
    """Read config and model of a file of :func:`save_single`."""
    cfg = load_config(path.with_suffix('.py'))
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    single = MODELS.build(cfg.model)
    single.load_state_dict(load_weights_only(path)['state_dict'])
    return cfg, single.eval()


def load_checkpoint(path: Path) -> Callable[[Tensor], Predictions]:
    """Open a file of :func:`save_single` to predict images as graphs take them."""
    cfg, single = read_single(path)
    # mm loads BGR.
    return lambda images: predict_loaded(cfg, single, graph_order(cfg, images))


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of the active stitch, by their names in a plain model."""
    state = model.state_dict()
    for name, module in model.named_modules(remove_duplicate=False):
        if hasattr(type(module), 'merged'):
            for key, value in module.merged().state_dict().items():
                state[f'{name}.{key}'] = value
        if isinstance(module, StitchBatchNorm):
            mean, var = module.moments()
            state |= {f'{name}.running_mean': mean, f'{name}.running_var': var}
    backbone = find_stitched_backbone(model)
    stitch = backbone.active_stitch
    for name, module in model.named_modules():
        if isinstance(module, PartPerAnchor):
            own = f'{name}.parts.{stitch.end_anchor}.'
            held = {k: v for k, v in state.items() if k.startswith(own)}
            state |= {f'{name}.{k.removeprefix(own)}': v for k, v in held.items()}
    path = ''.join(f'{part}.' for part in _path(model, backbone) if part)
    for key, value in backbone.exported_weights(stitch).items():
        state[path + key] = value
    for name in backbone.plugins:
        plugin = getattr(backbone, name)
        weights = {k.removeprefix(path): v for k, v in state.items()}
        for key, value in plugin.exported_weights(stitch, weights).items():
            state[path + key] = value
    return state


def _place(config: dict, path: list[str]) -> tuple[dict | list, str | int]:
    """Return the config that contains the config of a part of a model, and its key."""
    *above, place = [int(part) if part.isdigit() else part for part in path]
    return reduce(getitem, above, config), place


def _path(model: nn.Module, part: nn.Module) -> list[str]:
    path = next(name for name, module in model.named_modules() if module is part)
    return path.split('.')


def _backbone_config(
    config: ConfigDict, backbone: StitchedBackbone, stitch: Stitch
) -> dict:
    if isinstance(backbone, ElasticBackbone):
        return backbone.exported_config(stitch, _untrained(config.anchors[0]))
    with_maps = backbone.out == 'maps'
    maps = [None] * (len(backbone.out_indices) if with_maps else 0)
    for j in backbone.eval_maps if with_maps else ():
        position, layer = backbone.map_source(stitch, backbone.out_indices[j])
        maps[j] = (*position, layer)
    used = {*stitch.layers, *(m[2] for m in maps if m)}
    layers = {
        name: layer.merged().config()
        for name, layer in backbone.stitching_layers.items()
        if name in used
    }
    anchors = [None] * len(config.anchors)
    map_anchor = backbone.map_anchor(stitch) if any(maps) else None
    # Maps may pass through layers, such as norms, of an anchor that is not run.
    for i in {segment.anchor for segment in stitch.segments} | {map_anchor} - {None}:
        plain = _untrained(config.anchors[i])
        for name in backbone.plugins:
            plain |= getattr(backbone, name).exported_settings
        anchors[i] = plain
    return dict(
        type='SingleStitch',
        anchors=anchors,
        segments=[tuple(segment) for segment in stitch.segments],
        joints=list(stitch.layers),
        stitching_layers=layers,
        maps=maps,
        with_cls=backbone.with_cls,
        map_anchor=map_anchor,
    )


def _check_layers(backbone: StitchedBackbone, single: nn.Module) -> None:
    """Raise if a stitching layer of a single stitch lacks weights."""
    for part in single.modules():
        if isinstance(part, SingleStitch):
            for name, layer in part.stitching_layers.items():
                merged = backbone.stitching_layers[name].merged()
                lost = sorted(merged.state_dict().keys() - layer.state_dict().keys())
                expected = f'a type whose config() builds a layer with {lost}'
                kind = type(merged).__name__
                check(not lost, 'backbone.stitching_layer.type', kind, expected)


def _untrained(anchor: Mapping) -> dict:
    """Return the config of an anchor without settings that only training uses."""
    return {k: v for k, v in anchor.items() if k not in TRAINING_KEYS}


def _drop_pretrained(config: dict) -> None:
    for part in dicts_in(config):
        init = part.get('init_cfg') or ()
        listed = [init] if isinstance(init, dict) else init
        kept = [i for i in listed if i['type'] != 'Pretrained']
        if len(kept) < len(listed):
            part.pop('init_cfg')
            part.update(dict(init_cfg=kept) if kept else {})
