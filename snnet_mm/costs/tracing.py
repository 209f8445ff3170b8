"""Run models on tensors of unknown content, to infer shapes only.

Meta tensors are not sufficient: heads create priors, level sizes and masks on the
device of their maps, read their values, and select locations by content. An unknown
tensor is a CPU tensor of any shape, expanded from one element. Results computed from
unknown tensors are unknown, too.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache, lru_cache, partial
from itertools import chain
from types import ModuleType
from typing import NamedTuple
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.distributed import ProcessGroup
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_unflatten

aten = torch.ops.aten


@cache
def _element(dtype: torch.dtype) -> Tensor:
    """Return 0 for integers, a valid index, else 1, a valid divisor or True."""
    index = not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    return torch.full((), not index, dtype=dtype, device='cpu')


def unknown(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return a tensor of unknown content."""
    return _element(dtype).expand(shape)


def is_unknown(x: Tensor) -> bool:
    """Return whether the content of a tensor is unknown."""
    if x.device.type != 'cpu':
        return False
    element = _element(x.dtype)
    return x.untyped_storage().data_ptr() == element.untyped_storage().data_ptr()


@contextmanager
def tracing() -> Iterator[None]:
    """Infer only the shapes of operations on unknown tensors; run others as usual.

    If a shape depends on content, the largest is assumed: masks select everything, and
    NMS keeps all boxes. Attention is split into operations that can be counted.
    """
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        copied = patch.object(Tensor, '__deepcopy__', lambda x, _: x.clone())
        with sdpa_kernel(SDPBackend.MATH), copied, _mmcv_operators(), _ByShape():
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


def without_content(model: nn.Module) -> nn.Module:
    """Return a copy for tracing; tensors shared by names or modules stay shared.

    Integers and masks keep their content, because they index other tensors.
    """
    copies: dict[int, object] = {}
    for held in tree_leaves([vars(module) for module in model.modules()]):
        if isinstance(held, Tensor):
            copy = unknown(held.shape, held.dtype)
            if isinstance(held, nn.Parameter):
                copy = nn.Parameter(copy, requires_grad=False)
            elif not held.is_floating_point() and not held.is_meta:
                copy = held.detach().cpu().clone()
            copies[id(held)] = copy
        elif isinstance(held, ProcessGroup):  # from SyncBN; cannot be copied
            copies[id(held)] = held
    return deepcopy(model, copies)


class _ByShape(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        leaves, spec = tree_flatten((args, kwargs))
        if not any(isinstance(x, Tensor) and is_unknown(x) for x in leaves):
            return func(*args, **kwargs)
        # Views of an unknown tensor stay unknown and are cheap.
        if func in BY_ELEMENT or func.is_view and func not in RESHAPES:
            return func(*args, **kwargs)
        if func in LARGEST:
            return LARGEST[func](*args, **kwargs)
        if func is aten.index.Tensor:
            indices = [*chain.from_iterable(map(_chosen, args[1]))]
            leaves, spec = tree_flatten(((args[0], indices), kwargs))
        # Results are cached, as layers repeat. Types distinguish 1, 1.0 and True.
        keys = tuple(
            _Meta(x.shape, x.dtype) if isinstance(x, Tensor) else (type(x), x)
            for x in leaves
        )
        returned = func._schema.returns
        if returned and returned[0].alias_info and returned[0].alias_info.is_write:
            return kwargs.get('out', args[0])
        found, spec = _results(func, spec, tuple(keys))
        found = [unknown(*x) if isinstance(x, _Meta) else x for x in found]
        return tree_unflatten(found, spec)


class _Meta(NamedTuple):
    """Shape and data type of an unknown tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


@lru_cache(maxsize=4096)
def _results(func: OpOverload, spec: TreeSpec, leaves: tuple) -> tuple[list, TreeSpec]:
    """Run an operation on meta tensors; other leaves are pairs of type and value."""
    args, kwargs = tree_unflatten(map(_on_meta, leaves), spec)
    found, spec = tree_flatten(func(*args, **kwargs))
    return [
        _Meta(x.shape, x.dtype) if isinstance(x, Tensor) else x for x in found
    ], spec


def _on_meta(leaf: _Meta | tuple[type, object]) -> object:
    if isinstance(leaf, _Meta):
        return torch.empty(leaf.shape, dtype=leaf.dtype, device='meta')
    kind, value = leaf
    return torch.device('meta') if kind is torch.device else value


def _chosen(index: Tensor | None) -> list[Tensor | None]:
    """Expand a mask to one index per dimension; return other indices unchanged."""
    if index is None or index.dtype not in (torch.bool, torch.uint8):
        return [index]
    number = index.numel() if is_unknown(index) else int(index.sum())
    return [unknown((number,), torch.long)] * index.dim()


def _unique(x: Tensor, *_, **__) -> tuple[Tensor, ...]:
    number = unknown((1,), torch.long)
    return unknown((1,), x.dtype), unknown(x.shape, torch.long), number


def _equal(x: Tensor, _: object) -> Tensor:
    """Return False for scalars, so that no count of results equals 0."""
    return unknown(x.shape, torch.bool) if x.dim() else torch.tensor(False)


def _repeated(*_, **__) -> Tensor:
    raise NotImplementedError('what is repeated depends on content')


def _sampled(x: Tensor, grid: Tensor, *_) -> Tensor:
    return unknown((*x.shape[:2], *grid.shape[1:-1]), x.dtype)


def _nms(boxes: Tensor, *_, **__) -> Tensor:
    return torch.arange(len(boxes))


# Operations that read the single element of an unknown tensor.
BY_ELEMENT = {aten._local_scalar_dense.default}
# Views that need real strides; those of an unknown tensor are 0.
RESHAPES = {aten.view.default, aten._reshape_alias.default, aten.as_strided.default}
# Operations whose shape or truth value depends on content, and a slow one.
LARGEST: dict[Callable, Callable] = {
    aten.nonzero.default: lambda x: unknown((x.numel(), x.dim()), torch.long),
    aten.masked_select.default: lambda x, mask: unknown(
        (torch.broadcast_shapes(x.shape, mask.shape).numel(),), x.dtype
    ),
    aten.eq.Scalar: _equal,
    aten.equal.default: lambda *_: True,
    aten._unique2.default: _unique,
    aten.repeat_interleave.Tensor: _repeated,
    aten.grid_sampler_2d.default: _sampled,  # otherwise takes 0.1 s
}


@contextmanager
def _mmcv_operators() -> Iterator[None]:
    """Replace mmcv's operators, which read memory, with substitutes for counting.

    mmcv's Python code calls them in its extension and passes output buffers. If mmcv
    changes that, tests/test_costs/test_tracing.py fails.
    """
    extension = sys.modules.get('mmcv._ext', ModuleType('none'))
    own = {k: v for k, v in vars(extension).items() if callable(v) and k[0] != '_'}
    for name in own:
        setattr(extension, name, OPERATORS.get(name, partial(_operator, name)))
    try:
        yield
    finally:
        vars(extension).update(own)


def _operator(name: str, *tensors: object, **_) -> None:
    if not name.endswith('_forward'):
        raise NotImplementedError(f"mmcv's {name} cannot be counted")
    for x in tensors:
        if isinstance(x, Tensor):
            x.detach()  # registers the read


def _convolution(output: int, *tensors: Tensor, **_) -> None:
    """Run the matrix product of a deformable convolution, so that it is counted."""
    _operator('_forward', *tensors)
    number, channels = tensors[output].numel(), tensors[output].shape[1]
    weight = tensors[1].reshape(channels, -1)
    unknown((number // channels, weight.shape[1]), weight.dtype) @ weight.T


OPERATORS = dict(
    nms=_nms,
    softnms=_nms,
    deform_conv_forward=partial(_convolution, 3),
    modulated_deform_conv_forward=partial(_convolution, 6),
)
