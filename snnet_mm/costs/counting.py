"""FLOPs and parameters of every stitch, computed from the model itself."""

import logging
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial

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
from snnet_mm.utils import isolated_rng, refusal

from .parts import (
    FEATURES,
    Forward,
    Heads,
    Part,
    T,
    as_shipped,
    copy_on_meta,
    ends,
    forward_of,
    parameters_by_part,
    parts_by_stitch,
    returning,
    run_backbone_parts,
    unscaled,
)
from .sizes import empty_images

# Raised by layers, and by necks and heads that count or index their maps.
MISFITS = RuntimeError, AssertionError, IndexError
# Counts a copy of a model, whose backbone may be on meta. Takes the copy, the device of
# its other parts, the input size and the forward to count.
Count = Callable[[nn.Module, torch.device, tuple[int, int], Forward], T]


def cost_table(
    model: nn.Module, input_size: tuple[int, int] | None = None
) -> StitchTable:
    """Count FLOPs and parameters of all stitches of a model.

    Every embedding, block and stitching layer runs once, and so does the rest of the
    model, or once per end anchor if it depends on that. A stitch costs the sum of its
    parts. They run on meta tensors. Parts that depend on the content of images, such as
    boxes, predict one image of noise on the model's device: their cost may depend on
    that image. Two-stage detectors keep the maximum number of boxes.

    The count covers maps computed in eval mode and all that prediction runs. Low-rank
    updates count as merged. Auxiliary heads and test-time augmentation are not counted.

    Heads are skipped if they need more than images, such as texts or ground truth. The
    table's ``scope`` is then ``'backbone and neck alone'``, and the reason is logged.

    Args:
        model: A stitched backbone, or an mm model that contains one.
        input_size: See :func:`empty_images`.

    Raises:
        ValueError: If the model cannot run at this size.
    """
    return part_costs(model, input_size)[0]


def part_costs(
    model: nn.Module, input_size: tuple[int, int] | None = None
) -> tuple[StitchTable, dict[Part, Cost]]:
    """Return :func:`cost_table`, and FLOPs and parameters of every part of a model.

    Parameters that several parts share count in each of them.
    """
    model = unwrapped(model)
    backbone = find_stitched_backbone(model)
    size = tuple(empty_images(model, input_size, batch=1).shape[-2:])
    (stitches, parts), scope = _count(model, size, _count_stitches, backbone)
    return StitchTable.counted(stitches, size, backbone.space, scope), parts


def whole_model_cost(
    model: nn.Module, input_size: tuple[int, int]
) -> tuple[Cost, str | None]:
    """Count FLOPs and parameters of a model without stitches, such as an anchor alone.

    The second value is the ``scope``; see :func:`cost_table`.
    """
    return _count(unwrapped(model), input_size, _count_whole, nn.Module())


def _count(
    model: nn.Module, size: tuple[int, int], count: Count[T], backbone: nn.Module
) -> tuple[T, str | None]:
    """Count a model, or its backbone and neck alone if its heads need more."""
    device = next(model.parameters()).device

    def counted(scope: str | None) -> T:
        more = size, forward_of(model, scope)
        try:
            return count(copy_on_meta(model, model), torch.device('meta'), *more)
        except Exception:  # some heads need content; errors are raised again
            with suppress(RuntimeError):  # so do some backbones
                return count(copy_on_meta(model, backbone), device, *more)
        return count(copy_on_meta(model, nn.Module()), device, *more)

    try:
        try:
            return counted(None), None
        except (NotImplementedError, AttributeError, TypeError) as error:
            reason = _reason_of(error)
        features = counted(FEATURES)
    except MISFITS as error:
        expected = 'a size the model can run, with in_channels and in_index of neck '
        expected += f'and heads that fit their maps: {_reason_of(error)}'
        raise refusal('input_size', size, expected) from error
    words = f'Costs of {type(model).__name__} are those of {FEATURES}. What follows '
    print_log(f'{words}cannot be counted: {reason}', 'current', logging.WARNING)
    return features, FEATURES


def _reason_of(error: Exception) -> str:
    return f'{type(error).__name__}: {error}'.partition('\n')[0]


@torch.no_grad()
def _count_stitches(
    model: nn.Module, device: torch.device, size: tuple[int, int], run: Forward
) -> tuple[dict[int, Cost], dict[Part, Cost]]:
    """Return the costs by stitch id and by part."""
    backbone = find_stitched_backbone(model)
    images = empty_images(model, size, batch=1)
    images = _noise_like(images, next(backbone.parameters()).device)
    counter, flops = _Counter(), dict[Part, int]()
    held: dict[Part, set[int]] = defaultdict(set)  # ids of parameters

    def measure(part: Part, run_part: Callable[[], T]) -> T:
        result, flops[part], used = counter.count(run_part)
        if isinstance(plain := unscaled(part), Heads):
            held[plain] = used & outside
        return result

    def cost(parts: set[Part]) -> Cost:
        plain = set(map(unscaled, parts))
        params = sum(numbers[n] for n in set().union(*(held[p] for p in plain)))
        params += sum(shared.get(part, 0) for part in plain)
        return Cost(sum(flops[part] for part in parts), params)

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
        run_backbone_parts(backbone, images, measure)
        for part, output in ends(model, images):
            with returning(backbone, _noise_like(output, device)):
                measure(part, partial(run, model, _noise_like(images, device)))
        stitches = parts_by_stitch(model)
        by_stitch = {i: cost(parts) for i, parts in stitches.items()}
        return by_stitch, {part: cost({part}) for part in flops}


@torch.no_grad()
def _count_whole(
    model: nn.Module, device: torch.device, size: tuple[int, int], run: Forward
) -> Cost:
    with isolated_rng(0):
        images = _noise_like(empty_images(model.eval(), size, batch=1), device)
        _, flops, used = _Counter().count(partial(run, model, images))
    return Cost(flops, sum(p.numel() for p in model.parameters() if id(p) in used))


def _noise_like(output: object, device: torch.device) -> object:
    """Return an output with noise in place of its tensors, and zeros for integers."""

    def of(x: Tensor) -> Tensor:
        make = torch.randn if x.is_floating_point() else torch.zeros
        return make(x.shape, dtype=x.dtype, device=device)

    return tree_map_only(Tensor, of, output)


class _Counter(TorchDispatchMode):
    """Counts FLOPs by torch's formulas, and records the ids of all tensors read.

    Computing the shapes of results on meta would take most of the time, so they are
    cached.
    """

    def __init__(self) -> None:
        super().__init__()
        # Imported here, because it loads a kernel compiler that training does not need.
        from torch.utils.flop_counter import flop_registry

        self.formulas, self.results = flop_registry, dict[tuple, tuple]()

    def count(self, run: Callable[[], T]) -> tuple[T, int, set[int]]:
        """Return the result of a call, its FLOPs and the ids of all tensors it reads.

        Attention runs as matrix products: not all fused operations are counted.
        """
        self.flops, self.ids = 0, set[int]()
        fast_path = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with sdpa_kernel(SDPBackend.MATH), self:
                result = run()
        finally:
            torch.backends.mha.set_fastpath_enabled(fast_path)
        return result, self.flops // 2, self.ids

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves, structure = tree_flatten((args, kwargs))
        read = [x for x in leaves if isinstance(x, Tensor)]
        self.ids |= set(map(id, read))
        on_meta = all(x.is_meta for x in read)
        key = on_meta and (func, structure, *map(_described, leaves))
        if key in self.results:
            result, flops = self.results[key]
            self.flops += flops
            return tree_map_only(Tensor, torch.empty_like, result)
        whole = func is not torch.ops.prim.device.default
        if whole and func.overloadpacket not in self.formulas:
            with self:  # in inference mode, linear layers arrive here
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result, flops = func(*args, **kwargs), 0
        if func.overloadpacket in self.formulas:
            flops = self.formulas[func.overloadpacket](*args, **kwargs, out_val=result)
        self.flops += flops
        made = [x for x in tree_leaves(result) if isinstance(x, Tensor)]
        schema = func._schema
        aliases = schema.is_mutable or any(r.alias_info for r in schema.returns)
        if on_meta and not aliases and all(x.is_meta for x in made):
            self.results[key] = tree_map_only(Tensor, torch.empty_like, result), flops
        return result


def _described(argument: object) -> object:
    """Return a hashable key that determines the result of an operation."""
    if isinstance(argument, Tensor):
        return argument.shape, argument.stride(), argument.dtype
    return type(argument), argument


def count_parameters(model: nn.Module) -> dict[str, tuple[int, int]]:
    """Return the numbers of trained and of all parameters by part of a model.

    Parts are the direct children, e.g. ``'decode_head'``, of the model and of its
    stitched backbone.
    """
    model = unwrapped(model)
    stitched = (n for n, m in model.named_modules() if isinstance(m, StitchedBackbone))
    prefixes = [f'{name}.' if name else '' for name in stitched]
    counts: dict[str, tuple[int, int]] = {}
    for name, parameter in model.named_parameters():
        prefix = next((p for p in prefixes if name.startswith(p)), '')
        part = prefix + name.removeprefix(prefix).partition('.')[0]
        trained, total = counts.get(part, (0, 0))
        number = parameter.numel()
        counts[part] = trained + number * parameter.requires_grad, total + number
    return counts
