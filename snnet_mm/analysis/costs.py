"""FLOPs and parameters of every stitch, computed from the model itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from mmengine.model import (
    BaseDataPreprocessor,
    BaseModel,
    BaseTTAModel,
    is_model_wrapper,
)
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from snnet_mm.models import StitchedBackbone, find_stitched_backbone
from snnet_mm.stitching import Cost, CostTable, Position, Stitch

Part = Position | str  # a block (-1: the embedding), or the name of a stitching layer


def cost_table(
    model: nn.Module, input_size: tuple[int, int] | None = None
) -> CostTable:
    """Costs of all stitches of a model, in well under a second.

    On meta tensors every embedding, block and stitching layer is run once, and once
    the whole model; a stitch costs the sum of its parts. Counted are the maps computed
    in eval mode and the heads that prediction runs; auxiliary heads are not, and
    low-rank updates count as merged. Test-time augmentation is not counted.

    Args:
        model: A stitched backbone, or an mm model that holds one.
        input_size: Height and width in pixels; by default the fixed size of the
            model's data preprocessor.

    Raises:
        ValueError: If the model holds no stitched backbone, or no size is known.
    """
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    size = tuple(input_size or preprocessed_size(model))
    counter = _CostCounter(model)
    with _cheapest_in_eval_mode(model), torch.no_grad():
        costs = functional_call(counter, _on_meta(counter), (size,))
    return CostTable(costs, size)


def preprocessed_size(model: nn.Module) -> tuple[int, int]:
    """Height and width that a model's data preprocessor pads batches to.

    Raises:
        ValueError: If there is no data preprocessor with a fixed size.
    """
    for module in model.modules():
        size = getattr(module, 'size', None)
        if isinstance(module, BaseDataPreprocessor) and size is not None:
            return tuple(size)
    raise ValueError(
        'FLOPs need an input size, and the data preprocessor has none; give height and '
        'width (config key: input_size, or model.data_preprocessor.size)'
    )


class _CostCounter(nn.Module):
    """Counts the parts of a model; to be run with meta tensors in their place."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_size: tuple[int, int]) -> dict[int, Cost]:
        """The cost of every stitch by id."""
        backbone = find_stitched_backbone(self.model)
        images = torch.empty(1, 3, *input_size, device='meta')
        flops, params = _backbone_parts(backbone, images)
        rest, outside = _behind_backbone(self.model, backbone, images)
        costs = {}
        for stitch in backbone.space:
            parts = _parts_of(backbone, stitch)
            costs[stitch.id] = Cost(
                rest + sum(flops[part] for part in parts),
                outside + sum(params[part] for part in parts),
            )
        return costs


def _parts_of(backbone: StitchedBackbone, stitch: Stitch) -> set[Part]:
    """The parts of the backbone that a stitch runs, each of them once."""
    parts: set[Part] = {Position(stitch.segments[0].anchor, -1), *stitch.layers}
    for anchor, begin, end in stitch.segments:
        parts |= {Position(anchor, i) for i in range(begin, end)}
    for j in backbone.wanted_maps():
        _, layer = backbone.map_source(stitch, backbone.out_indices[j])
        if layer is not None:
            parts.add(layer)
    return parts


def _backbone_parts(
    backbone: StitchedBackbone, images: Tensor
) -> tuple[dict[Part, int], dict[Part, int]]:
    """FLOPs and parameters of every part of the backbone."""
    flops: dict[Part, int] = {}
    params: dict[Part, int] = defaultdict(int)
    states = {}
    for a, anchor in enumerate(backbone.anchors):
        here = Position(a, -1)
        flops[here], state = _count(partial(anchor.embed, images))
        states[here] = state
        for i in range(anchor.depth):
            here = Position(a, i)
            run = partial(anchor.run_blocks, state, i, i + 1)
            flops[here], (state, _) = _count(run)
            states[here] = state
        for name, parameter in anchor.named_parameters():
            level, _ = anchor.layer_depth(name)
            # What comes behind the last block (a final norm) is run with it.
            params[Position(a, min(level, anchor.depth) - 1)] += parameter.numel()
    for name, spec in backbone.space.layers.items():
        layer = backbone.stitching_layers[name].merged()
        flops[name], _ = _count(partial(layer, states[spec.source].tokens))
        params[name] = sum(p.numel() for p in layer.parameters())
    return flops, params


def _behind_backbone(
    model: nn.Module, backbone: StitchedBackbone, images: Tensor
) -> tuple[int, int]:
    """FLOPs and parameters of what prediction runs besides the backbone."""
    run = partial(model, images)
    if isinstance(model, BaseModel):
        run = partial(model, images, mode='tensor')
    inside: list[int] = []
    with FlopCounterMode(display=False) as counter, _UsedTensors() as used:
        handles = [
            register(lambda *_: inside.append(counter.get_total_flops()))
            for register in (
                backbone.register_forward_pre_hook,
                backbone.register_forward_hook,
            )
        ]
        try:
            run()
        finally:
            for handle in handles:
                handle.remove()
    before, after = inside
    flops = counter.get_total_flops() - (after - before)
    in_backbone = {id(p) for p in backbone.parameters()}
    params = {id(p): p.numel() for p in model.parameters() if id(p) not in in_backbone}
    return flops // 2, sum(n for i, n in params.items() if i in used.ids)


class _UsedTensors(TorchDispatchMode):
    """Remembers which tensors any operation reads, called as a module or not."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        read = tree_leaves((args, kwargs))
        self.ids |= {id(x) for x in read if isinstance(x, Tensor)}
        return func(*args, **kwargs)


def _on_meta(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers without their data; tied ones stay tied."""
    tensors = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    metas = {id(t): t.detach().to('meta') for _, t in tensors}
    return {name: metas[id(t)] for name, t in tensors}


def _count(run: Callable[[], object]) -> tuple[int, object]:
    """Multiply-accumulates of a call, and its result."""
    with FlopCounterMode(display=False) as counter:
        result = run()
    return counter.get_total_flops() // 2, result


@contextmanager
def _cheapest_in_eval_mode(model: nn.Module) -> Iterator[None]:
    """Eval mode with the fast anchor active: the quickest way to see the rest run."""
    backbone = find_stitched_backbone(model)
    active = backbone.active_stitch
    training = {m: m.training for m in model.modules()}
    model.eval()
    backbone.set_stitch(backbone.space.anchor_ids[0])
    try:
        yield
    finally:
        backbone.set_stitch(active.id)
        for module, flag in training.items():
            module.training = flag
