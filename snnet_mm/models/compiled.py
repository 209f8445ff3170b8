"""Stitches compiled by torch, one callable for each."""

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from snnet_mm.tasks import task_of
from snnet_mm.utils import check, refusal

from .stitch_switch import find_stitched_backbone, unwrapped


def compile_stitches(model: nn.Module, **options: Any) -> None:
    """Make a model compile every stitch when it first runs it in eval mode, in place.

    One function compiled for all stitches would be compiled again for each, and run
    uncompiled after eight of them. So every stitch has its own, which contains the
    backbone and, as far as the task allows, neck, head and the resizing of logits.
    Stitches then share no first blocks; training stays uncompiled.

    Args:
        model: An mm model with a stitched backbone.
        **options: Options of ``torch.compile``. Default: CUDA graphs on a GPU
            (``mode='reduce-overhead'``), as eager PyTorch spends the time of small
            stitches on launching kernels.

    Examples:
        >>> compile_stitches(model)
        >>> set_stitch(model, 3)
        >>> model.test_step(batch)
    """
    model = unwrapped(model)
    if not options and next(model.parameters()).is_cuda:
        options = dict(mode='reduce-overhead')
    name = task_of(model).compiled
    check(hasattr(model, name), 'model.type', type(model).__name__, f'one with {name}')
    setattr(model, name, _CompiledMethod(model, name, options))
    find_stitched_backbone(model).shares_prefixes = False


def is_compiled(model: nn.Module) -> bool:
    """Return whether :func:`compile_stitches` was called for a model."""
    return any(isinstance(v, _CompiledMethod) for v in vars(unwrapped(model)).values())


class _CompiledMethod:
    """A method of a model, compiled for each of its stitches."""

    def __init__(self, model: nn.Module, name: str, options: dict[str, Any]) -> None:
        self._model, self._options = model, options
        self._method: FunctionType = getattr(type(model), name)
        self._made: dict[int, Callable] = {}

    def __call__(self, images: Tensor, *args: Any, **kwargs: Any) -> Any:
        args = images, *args
        if self._model.training or images.is_meta:  # costs are counted on meta tensors
            return self._method(self._model, *args, **kwargs)
        stitch = find_stitched_backbone(self._model).active_stitch.id
        if stitch not in self._made:
            # Dynamo cannot trace cached properties before they are filled.
            self._method(self._model, *args, **kwargs)
            self._made[stitch] = self._compile(stitch)
        try:
            found = self._made[stitch](self._model, *args, **kwargs)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = ' '.join(str(error).split('\n\n')[0].split())
            expected = f'False: stitch {stitch} cannot be compiled here ({reason})'
            raise refusal('--compile', True, expected) from error
        # A CUDA graph writes its next outputs into the same memory.
        return tree_map(lambda x: x.clone() if isinstance(x, Tensor) else x, found)

    def _compile(self, stitch: int) -> Callable:
        """Return a compiled copy of the method.

        Dynamo caches and limits compilations by code object, so each copy has its own.
        """
        own = self._method
        code = own.__code__.replace(co_name=f'{own.__name__}_of_stitch_{stitch}')
        given = own.__globals__, own.__name__, own.__defaults__, own.__closure__
        copy = FunctionType(code, *given)
        copy.__kwdefaults__ = own.__kwdefaults__
        return torch.compile(copy, fullgraph=True, **self._options)
