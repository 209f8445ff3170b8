"""FLOPs and parameters of every stitch, computed from the model itself."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from snnet_mm.models import find_stitched_backbone, unwrapped
from snnet_mm.stitching import Cost, CostTable
from snnet_mm.utils import refusal

from .parts import (
    Part,
    Rest,
    T,
    as_shipped,
    empty_images,
    parameters_by_part,
    parts_by_stitch,
    run_parts,
)


def cost_table(
    model: nn.Module, input_size: tuple[int, int] | None = None
) -> CostTable:
    """FLOPs and parameters of all stitches of a model, in well under a second.

    On meta tensors every embedding, block and stitching layer is run once, and once
    what comes after the backbone; a stitch costs the sum of its parts. Counted are the
    maps computed in eval mode and the heads that prediction runs; auxiliary heads are
    not, low-rank updates count as merged, and test-time augmentation is not counted.

    Args:
        model: A stitched backbone, or an mm model that holds one.
        input_size: See :func:`empty_images`.
    """
    model = unwrapped(model)
    space = find_stitched_backbone(model).space
    size = tuple(empty_images(model, input_size, batch=1).shape[-2:])
    counter = _CostCounter(model)
    try:
        with torch.no_grad():
            costs = functional_call(
                counter, _on_meta(counter), (size,), tie_weights=False
            )
    except RuntimeError as error:
        reason = f'those that the model can run: {str(error).splitlines()[0]}'
        keys = 'in_channels of the neck and the heads, input_size'
        raise refusal(keys, size, reason) from error
    return CostTable(costs, size, space.fingerprint)


def _on_meta(model: nn.Module) -> dict[str, Tensor]:
    """Return all parameters and buffers without their data; tied ones stay tied."""
    metas: dict[int, Tensor] = {}
    named = {}
    # A module held under two names is visited once: functional_call would take the
    # meta tensor that it finds under the second name for the weight to put back.
    for path, module in model.named_modules():
        for name, t in (*module._parameters.items(), *module._buffers.items()):
            if t is not None:
                meta = metas.setdefault(id(t), t.detach().to('meta'))
                named[f'{path}.{name}' if path else name] = meta
    return named


class _CostCounter(nn.Module):
    """Counts the parts of a model; to be run with meta tensors in their place."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_size: tuple[int, int]) -> dict[int, Cost]:
        """The cost of every stitch by id."""
        images = empty_images(self.model, input_size, batch=1)
        with as_shipped(self.model):
            flops, params = self._count_parts(images)
            return {
                i: Cost(sum(flops[p] for p in parts), sum(params[p] for p in parts))
                for i, parts in parts_by_stitch(self.model).items()
            }

    def _count_parts(self, images: Tensor) -> tuple[dict[Part, int], dict[Part, int]]:
        """FLOPs and parameters of every part."""
        # Imported here, for it loads a compiler of kernels, which training needs not.
        from torch.utils.flop_counter import FlopCounterMode

        backbone = find_stitched_backbone(self.model)
        flops: dict[Part, int] = {}
        params = defaultdict(int)
        for part, parameters in parameters_by_part(backbone).items():
            params[part] = sum(p.numel() for p in parameters)
        outside = {id(p): p.numel() for p in self.model.parameters()}
        for p in backbone.parameters():
            outside.pop(id(p), None)

        def count(part: Part, run: Callable[[], T]) -> T:
            with FlopCounterMode(display=False) as counter, _UsedTensors() as used:
                result = run()
            if isinstance(part, Rest):
                params[part] = sum(n for i, n in outside.items() if i in used.ids)
            flops[part] = counter.get_total_flops() // 2
            return result

        run_parts(self.model, images, count)
        return flops, params


class _UsedTensors(TorchDispatchMode):
    """Remembers which tensors any operation reads, called as a module or not."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: set[int] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        read = tree_leaves((args, kwargs))
        self.ids |= {id(x) for x in read if isinstance(x, Tensor)}
        return func(*args, **(kwargs or {}))
