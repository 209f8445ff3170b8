"""Parts of a stitched model: each runs once, and a stitch is a sum of parts."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import BranchView
from snnet_mm.models import StitchedBackbone, find_stitched_backbone, set_stitch
from snnet_mm.models.backbones.scaling import scaled_images
from snnet_mm.stitching import Position, Step, Stitch
from snnet_mm.tasks import task_of

T = TypeVar('T')
Forward = Callable[[nn.Module, Tensor], object]


@dataclass(frozen=True)
class FeatureMap:
    """Conversion of an anchor's state to the map at a place in ``out_indices``."""

    place: int
    anchor: int


@dataclass(frozen=True)
class Heads:
    """All of a model except its backbone, run on the output of one end anchor."""

    end_anchor: int


@dataclass(frozen=True)
class Scaled:
    """A part that runs on images at a scale other than 1."""

    part: Step | FeatureMap | Heads
    scale: float


# A step of a route, a map, or the neck and heads.
Part = Step | FeatureMap | Heads | Scaled
# Takes a part and a callable that runs it, calls it once and returns its result.
Measure = Callable[[Part, Callable[[], T]], T]


def at_scale(part: Part, scale: float) -> Part:
    """Return a part as it runs on images at a scale."""
    return part if scale == 1 else Scaled(part, scale)


def unscaled(part: Part) -> Part:
    """Return a part without its scale."""
    return part.part if isinstance(part, Scaled) else part


def scales_of(backbone: StitchedBackbone) -> list[float]:
    """Return the scales of the stitches of a backbone, the largest first."""
    return sorted({stitch.scale for stitch in backbone.space}, reverse=True)


def run_backbone_parts(
    backbone: StitchedBackbone, images: Tensor, measure: Measure
) -> None:
    """Run every part of a backbone once per scale, in the order of its anchors.

    Every anchor runs block by block on images ``(B, 3, H, W)``, so the device and its
    caches are in the same state as in a real forward. Stitching layers and maps run as
    soon as their input exists.
    """
    for scale in scales_of(backbone):
        _run_at_scale(backbone, images, scale, measure)


def _run_at_scale(
    backbone: StitchedBackbone, images: Tensor, scale: float, measure: Measure
) -> None:
    used = {n for s in backbone.space if s.scale == scale for n in s.layers}
    used |= backbone.space.layers.keys() if scale == 1 else set()

    def run(part: Part, run_part: Callable[[], T]) -> T:
        return measure(at_scale(part, scale), run_part)

    maps = defaultdict(list)
    for j, a in product(backbone.wanted_maps(), backbone.map_anchors):
        (position, _), *_ = backbone.map_sources[backbone.out_indices[j], a]
        maps[position].append(FeatureMap(j, a))
    for a, anchor in enumerate(backbone.runners):
        small = scaled_images(images, scale, backbone.anchors[a])
        step = partial(anchor.embed, small)
        for i in range(-1, anchor.depth):
            state = run(Position(a, i), step)
            for name, spec in backbone.space.layers.items():
                if spec.source == Position(a, i) and name in used:
                    layer = backbone.stitching_layers[name]
                    run(name, partial(layer.map_state, state))
            for part in maps[a, i]:
                output = state, backbone.with_cls, part.place
                run(part, partial(anchor.to_output, *output))
            step = partial(anchor.run_block, state, i + 1)


def ends(model: nn.Module, images: Tensor) -> Iterator[tuple[Heads, object]]:
    """Yield the rest of a model and its backbone's output, per end anchor and scale.

    Parts that depend on the stitch follow the end anchor.
    """
    backbone = find_stitched_backbone(model)
    ids = {backbone.space[i].end_anchor: i for i in backbone.space.anchor_ids}
    for a in _end_anchors(model):
        for scale in scales_of(backbone):
            scaled = (s.id for s in backbone.space if s.scale == scale != 1)
            first = ids.get(a, backbone.space.anchor_ids[0])
            set_stitch(model, next(scaled, first))
            yield at_scale(Heads(a), scale), backbone(images)


@contextmanager
def returning(backbone: StitchedBackbone, output: object) -> Iterator[None]:
    """Let the backbone return an output without running."""
    backbone.forward = lambda *_, **__: output
    try:
        yield
    finally:
        del backbone.forward


def parts_by_stitch(model: nn.Module) -> dict[int, set[Part]]:
    """Return the parts of a model that each of its stitches runs, by stitch id."""
    backbone = find_stitched_backbone(model)
    parts, heads = {}, _end_anchors(model)
    for stitch in backbone.space:
        parts[stitch.id] = parts_of(backbone, stitch)
        if heads:
            end = stitch.end_anchor if stitch.end_anchor in heads else heads[0]
            parts[stitch.id].add(at_scale(Heads(end), stitch.scale))
    return parts


def parts_of(backbone: StitchedBackbone, stitch: Stitch) -> set[Part]:
    """Return the parts of a backbone that a stitch runs."""
    parts: set[Part] = set(stitch.steps)
    for j in backbone.wanted_maps():
        _, layer = backbone.map_source(stitch, backbone.out_indices[j])
        parts.add(FeatureMap(j, backbone.map_anchor(stitch)))
        parts |= set() if layer is None else {layer}
    return {at_scale(part, stitch.scale) for part in parts}


def parameters_by_part(backbone: StitchedBackbone) -> dict[Part, list[nn.Parameter]]:
    """Return parameters by part; only anchors and stitching layers have any."""
    parameters: dict[Part, list[nn.Parameter]] = defaultdict(list)
    for a, anchor in enumerate(backbone.anchors):
        view = backbone.runners[a]
        # A tied weight has two names: it runs with the embedding and the last block.
        for name, parameter in anchor.named_parameters(remove_duplicate=False):
            level, _ = anchor.layer_depth(name)
            # Modules after the last block, such as a final norm, run with it.
            step = min(level, anchor.depth) - 1
            if isinstance(view, BranchView):
                step = view.step_of(name)
            parameters[Position(a, step)].append(parameter)
    for name, layer in backbone.stitching_layers.items():
        parameters[name] = list(layer.parameters())
    return parameters


# Scope of a cost table if the heads cannot run on images alone.
FEATURES = 'backbone and neck alone'


def forward_of(model: nn.Module, scope: str | None) -> Forward:
    """Return the forward that covers the scope of a model's cost table."""
    task = task_of(model)
    return task.run if scope is None else task.run_features


@contextmanager
def as_shipped(model: nn.Module) -> Iterator[None]:
    """Run a model as exported: eval mode, no gradients, merged low-rank updates.

    Plugins are inactive. On exit everything is restored, including the active stitch.
    """
    backbone = find_stitched_backbone(model)
    active = backbone.active_stitch
    training = {m: m.training for m in model.modules()}
    merging = [
        (parent, name, layer)
        for parent in backbone.modules()
        for name, layer in parent.named_children()
        if hasattr(type(layer), 'merged')
    ]
    plugins = [getattr(backbone, name) for name in backbone.plugins]
    model.eval()
    try:
        for plugin in plugins:
            plugin.active = False  # merged in exports
        with torch.no_grad():
            for parent, name, layer in merging:
                setattr(parent, name, layer.merged())
            yield
    finally:
        for plugin in plugins:
            plugin.active = True
        for parent, name, layer in merging:
            setattr(parent, name, layer)
        set_stitch(model, active.id)
        for module, flag in training.items():
            module.training = flag


def _end_anchors(model: nn.Module) -> list[int]:
    """Return the end anchors for which the rest of a model must run separately."""
    backbone = find_stitched_backbone(model)
    if model is backbone:
        return []
    # Maps of the slowest anchor have one shape, so the rest runs once unless a part
    # depends on the stitch.
    differ = 'end' in (backbone.out, backbone.maps_of)
    differ |= any(hasattr(type(m), 'config_of_stitch') for m in model.modules())
    return sorted({stitch.end_anchor for stitch in backbone.space}) if differ else [0]


def copy_on_meta(model: nn.Module, part: nn.Module) -> nn.Module:
    """Return a copy of a model that shares its tensors, but has a part on meta.

    Tensors that several names or modules share stay shared.
    """
    moved, copies = {id(x) for x in _held_by(part)}, {}
    for x in _held_by(model):
        copy = x.detach().to('meta') if isinstance(x, Tensor) and id(x) in moved else x
        if isinstance(x, nn.Parameter):
            # torch's counter refuses inputs of modules that require gradients.
            copy = nn.Parameter(copy.detach(), requires_grad=False)
        copies[id(x)] = copy
    copy = deepcopy(model, copies)
    for module in copy.modules():
        if 'DeformConv2d' in type(module).__name__:
            module.forward = partial(_without_offsets, module)
    return copy


def _held_by(model: nn.Module) -> list[Tensor | ProcessGroup]:
    """Return the tensors of a model, and process groups, which cannot be copied."""
    leaves = tree_leaves([vars(module) for module in model.modules()])
    return [x for x in leaves if isinstance(x, Tensor | ProcessGroup)]


def _without_offsets(conv: nn.Module, x: Tensor, *_: Tensor) -> Tensor:
    """Let a deformable convolution run on meta, with FLOPs that torch counts."""
    if hasattr(conv, 'conv_offset'):
        conv.conv_offset(x)
    settings = conv.stride, conv.padding, conv.dilation, conv.groups
    return F.conv2d(x, conv.weight, getattr(conv, 'bias', None), *settings)
