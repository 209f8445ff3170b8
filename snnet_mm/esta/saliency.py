"""Saliency: the weight of a stitch's trained parameters in the loss of a step."""

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cache

import torch
from mmengine.dist import all_reduce
from mmengine.optim import OptimWrapper, OptimWrapperDict
from torch import Tensor, nn

from snnet_mm.evaluation.parts import parameters_by_part, parts_of
from snnet_mm.models import find_stitched_backbone, unwrapped
from snnet_mm.stitching import Stitch
from snnet_mm.utils import check


class SaliencyScorer:
    """Records the saliency of the stitches that each optimizer step trains.

    It reads the gradients right before the optimizer does: summed over ranks and
    accumulated iterations, clipped, without the scale of AMP, whose skipped steps score
    nothing. If a step trains several stitches, gradients of what they share are those
    of all; the paper does not say otherwise.
    """

    def __init__(
        self,
        model: nn.Module,
        optim_wrapper: OptimWrapper,
        record: Callable[[dict[int, float]], None],
    ) -> None:
        kind = type(optim_wrapper).__name__
        single = not isinstance(optim_wrapper, OptimWrapperDict)
        one = 'one optimizer, whose steps score the importance of stitches'
        check(single, 'optim_wrapper.type', kind, one)
        self._record = record
        self.trained: Sequence[Stitch] = ()  # the stitches of the next step
        self._parameters = cache(lambda stitch: trained_parameters(model, stitch))
        self._hook = optim_wrapper.optimizer.register_step_pre_hook(self._score)

    def remove(self) -> None:
        """Stop listening to the optimizer."""
        self._hook.remove()

    def _score(self, optimizer: torch.optim.Optimizer, *_) -> None:
        values = torch.stack([saliency(self._parameters(s)) for s in self.trained])
        # A fused optimizer gets scaled gradients and divides by the scale itself.
        scale = getattr(optimizer, 'grad_scale', None)
        if scale is not None:
            values = values / scale
        # Equal already, but for ranks on different hardware.
        all_reduce(values, 'mean')
        values = values.tolist()
        if all(map(math.isfinite, values)):
            ids = [stitch.id for stitch in self.trained]
            self._record(dict(zip(ids, values, strict=True)))


@torch.no_grad()
def saliency(parameters: Iterable[nn.Parameter]) -> Tensor:
    """Return the sum of ``|g w|`` over parameters ``w`` with gradient ``g`` (SNIP)."""
    trained = [p for p in parameters if p.grad is not None]
    keys = 'backbone.anchors.frozen_stages, lora, stitching_layer'
    some = 'settings that train a parameter of every stitch'
    check(trained, keys, 'no gradient', some)
    products = torch._foreach_mul([p.grad for p in trained], trained)
    return torch.stack(torch._foreach_norm(products, 1)).sum()


def trained_parameters(model: nn.Module, stitch: Stitch) -> list[nn.Parameter]:
    """Return the trained parameters that a stitch runs, but for ``idle_parameters``."""
    model = unwrapped(model)
    backbone = find_stitched_backbone(model)
    by_part = parameters_by_part(backbone)
    run = {id(p) for part in parts_of(backbone, stitch) for p in by_part[part]}
    idle = {id(p) for parameters in by_part.values() for p in parameters} - run
    for module in model.modules():
        if hasattr(type(module), 'idle_parameters'):
            idle |= {id(p) for p in module.idle_parameters(stitch)}
    used = [p for p in model.parameters() if id(p) not in idle]
    return [p for p in used if p.requires_grad]
