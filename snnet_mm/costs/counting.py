"""FLOPs and parameters of every stitch, computed from the model itself."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, NamedTuple

import torch
from mmengine.logging import print_log
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only

from snnet_mm.models import (
    NarrowBranch,
    StitchedBackbone,
    find_stitched_backbone,
    unwrapped,
)
from snnet_mm.stitching import Cost, StitchTable
from snnet_mm.utils import isolated_rng

from .copies import copy_on_meta, noise_like
from .parts import (
    FEATURES,
    Forward,
    Heads,
    Part,
    T,
    as_shipped,
    empty_images,
    ends,
    forward_of,
    parameters_by_part,
    parts_by_stitch,
    returning,
    run_backbone_parts,
)
from .widths import MISFITS, explained, modules_in, reason_of


def cost_table(
    model: nn.Module, input_size: tuple[int, int] | None = None
) -> StitchTable:
    """Count FLOPs and parameters of all stitches of a model.

    Every embedding, block and stitching layer runs once, and so does the rest of the
    model, or once per end anchor if it depends on that. A stitch costs the sum of its
    parts. They run on meta tensors. Parts that need content, such as that of boxes,
    really predict one image of noise, on the model's device: their cost may depend on
    that image. Two-stage detectors keep as many boxes as they may.

    The count covers maps computed in eval mode and all that prediction runs. Low-rank
    updates count as merged. Auxiliary heads and test-time augmentation are not counted.

    Heads are skipped if they need more than images, such as texts or ground truth. The
    table's ``scope`` is then ``'backbone and neck alone'``, and the reason is logged.

    Args:
        model: A stitched backbone, or an mm model that contains one.
        input_size: See :func:`empty_images`.
    """
    return part_costs(model, input_size)[0]


def part_costs(
    model: nn.Module, input_size: tuple[int, int] | None = None
) -> tuple[StitchTable, dict[Part, Cost]]:
    """Return :func:`cost_table`, and FLOPs and parameters of every part of a model.

    Parameters that several parts share count in each of them.
    """
    model = unwrapped(model)
    space = find_stitched_backbone(model).space
    size = tuple(empty_images(model, input_size, batch=1).shape[-2:])
    count = partial(_count_parts, model, size)
    (flops, params, stitches), scope = _counted_scope(model, size, count)
    costs = {
        i: Cost(sum(flops[p] for p in parts), params(*parts))
        for i, parts in stitches.items()
    }
    table = StitchTable.counted(costs, size, space, scope)
    return table, {part: Cost(flops[part], params(part)) for part in flops}


def _counted_scope(
    model: nn.Module, size: tuple[int, int], count: Callable[[Forward], T]
) -> tuple[T, str | None]:
    """Count a model, or its backbone and neck alone if its heads need more."""
    try:
        return count(forward_of(model, None)), None
    except (NotImplementedError, AttributeError, TypeError) as error:
        reason = reason_of(error)
        *_, (path, part) = [('', model), *modules_in(error)]
    except MISFITS as error:
        raise explained(error, model, size) from error
    try:
        counted = count(forward_of(model, FEATURES))
    except MISFITS as error:
        raise explained(error, model, size) from error
    words = f'Costs of {type(model).__name__} are those of {FEATURES}. What follows '
    words += (
        f'cannot be counted: {reason} (in {path or "model"}, {type(part).__name__})'
    )
    print_log(words, 'current', logging.WARNING)
    return counted, FEATURES


def _count_parts(
    model: nn.Module, size: tuple[int, int], run: Forward
) -> tuple[dict[Part, int], Callable[..., int], dict[int, set[Part]]]:
    """Return FLOPs by part, a function that counts parameters of parts, and the parts.

    The last are those that each stitch runs in eval mode, by stitch id.
    """
    count = partial(_count_copy, size=size, run=run)
    return _without_content(count, model, find_stitched_backbone(model))


def _without_content(
    count: Callable[[nn.Module, torch.device], T], model: nn.Module, backbone: nn.Module
) -> T:
    """Count a copy on meta, or one of which as little as possible is real.

    ``count`` takes the copy, and the device of what is not the backbone.
    """
    device = next(model.parameters()).device
    try:
        return count(copy_on_meta(model, model), torch.device('meta'))
    except Exception:  # some heads need content; faults are raised again
        with suppress(RuntimeError):  # so do some backbones
            return count(copy_on_meta(model, backbone), device)
    return count(copy_on_meta(model, nn.Module()), device)


@torch.no_grad()
def _count_copy(
    model: nn.Module, device: torch.device, size: tuple[int, int], run: Forward
) -> tuple[dict[Part, int], Callable[..., int], dict[int, set[Part]]]:
    backbone = find_stitched_backbone(model)
    images = empty_images(model, size, batch=1)
    images = noise_like(images, next(backbone.parameters()).device)
    flops: dict[Part, int] = {}
    held: dict[Part, set[int]] = defaultdict(set)  # ids of parameters

    def count(part: Part, run_part: Callable[[], T]) -> T:
        result, flops[part], used = _counted(run_part)
        if isinstance(part, Heads):
            held[part] = used & outside
        return result

    with isolated_rng(0), as_shipped(model):
        numbers = {id(p): p.numel() for p in model.parameters()}
        outside = numbers.keys() - {id(p) for p in backbone.parameters()}
        for part, parameters in parameters_by_part(backbone).items():
            held[part] = {id(p) for p in parameters}
        shared = {
            name: layer.num_shared
            for name, layer in backbone.stitching_layers.items()
            if isinstance(layer, NarrowBranch)
        }
        run_backbone_parts(backbone, images, count)
        for part, output in ends(model, images):
            with returning(backbone, noise_like(output, device)):
                count(part, partial(run, model, noise_like(images, device)))
        stitches = parts_by_stitch(model)

    def params(*parts: Part) -> int:
        used = set().union(*(held[part] for part in parts))
        return sum(numbers[n] for n in used) + sum(shared.get(p, 0) for p in parts)

    return flops, params, stitches


def whole_model_cost(
    model: nn.Module, input_size: tuple[int, int]
) -> tuple[Cost, str | None]:
    """Count FLOPs and parameters of a model without stitches, such as an anchor alone.

    The second value is the ``scope``; see :func:`cost_table`.
    """
    model = unwrapped(model)

    def count(run: Forward) -> Cost:
        whole = partial(_count_whole, size=input_size, run=run)
        return _without_content(whole, model, nn.Module())

    return _counted_scope(model, input_size, count)


@torch.no_grad()
def _count_whole(
    model: nn.Module, device: torch.device, size: tuple[int, int], run: Forward
) -> Cost:
    with isolated_rng(0):
        images = noise_like(empty_images(model.eval(), size, batch=1), device)
        _, flops, used = _counted(partial(run, model, images))
    return Cost(flops, sum(p.numel() for p in model.parameters() if id(p) in used))


def _counted(run: Callable[[], T]) -> tuple[T, int, set[int]]:
    """Return the result of a call, its FLOPs and the ids of all tensors it reads."""
    with _countable_attention(), _Counter() as counter:
        result = run()
    return result, counter.flops // 2, counter.ids


@contextmanager
def _countable_attention() -> Iterator[None]:
    """Run attention as matrix products: not all fused operations are counted."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


class _Counter(TorchDispatchMode):
    """Counts FLOPs by torch's formulas, and records the ids of all tensors read.

    Most of the time would go into shapes of results on meta, so these are remembered.
    """

    results: ClassVar[dict[tuple, tuple]] = {}

    def __init__(self) -> None:
        super().__init__()
        # Imported here, because it loads a kernel compiler that training does not need.
        from torch.utils.flop_counter import flop_registry

        self.formulas, self.flops, self.ids = flop_registry, 0, set[int]()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves, structure = tree_flatten((args, kwargs))
        self.ids |= {id(x) for x in leaves if isinstance(x, Tensor)}
        key = func, structure, *map(_described, leaves)
        if key in self.results:
            result, flops = self.results[key]
            self.flops += flops
            return tree_map_only(_OnMeta, _OnMeta.empty, result)
        # Fake tensors ask for their device by an operation that has no decomposition.
        if func.namespace != 'prim' and func.overloadpacket not in self.formulas:
            with self:  # in inference mode, linear layers arrive here whole
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result, flops = func(*args, **kwargs), 0
        if func.overloadpacket in self.formulas:
            flops = self.formulas[func.overloadpacket](*args, **kwargs, out_val=result)
        self.flops += flops
        tensors = [x for x in (*leaves, *tree_leaves(result)) if isinstance(x, Tensor)]
        schema = func._schema
        aliases = schema.is_mutable or any(r.alias_info for r in schema.returns)
        if not aliases and all(x.is_meta for x in tensors):
            self.results[key] = tree_map_only(Tensor, _OnMeta.of, result), flops
        return result


@dataclass(frozen=True)
class _OnMeta:
    """All that a tensor on meta is."""

    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> '_OnMeta':
        return cls(tensor.shape, tensor.stride(), tensor.dtype)

    def empty(self) -> Tensor:
        size, stride = self.size, self.stride
        return torch.empty_strided(size, stride, dtype=self.dtype, device='meta')


def _described(argument: object) -> object:
    """Return what decides the result of an operation, to be compared and hashed."""
    if isinstance(argument, Tensor):
        return _OnMeta.of(argument) if argument.is_meta else id(argument)
    return type(argument), argument


class ParameterCount(NamedTuple):
    """Numbers of trained and of all parameters in a part of a model."""

    trained: int
    total: int

    def __str__(self) -> str:
        return f'{self.trained:,} of {self.total:,}'


def count_parameters(model: nn.Module) -> dict[str, ParameterCount]:
    """Count parameters by part, e.g. ``'decode_head'``, also in stitched backbones."""
    model = unwrapped(model)
    stitched = (n for n, m in model.named_modules() if isinstance(m, StitchedBackbone))
    prefixes = [f'{name}.' if name else '' for name in stitched]
    counts: dict[str, ParameterCount] = {}
    for name, parameter in model.named_parameters():
        prefix = next((p for p in prefixes if name.startswith(p)), '')
        part = prefix + name.removeprefix(prefix).partition('.')[0]
        trained, total = counts.get(part, (0, 0))
        number = parameter.numel()
        trained += number * parameter.requires_grad
        counts[part] = ParameterCount(trained, total + number)
    return counts
