"""Saliency: the weight of a stitch's trained parameters in the loss of a step."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from snnet_mm.evaluation.parts import parameters_by_part, parts_of
from snnet_mm.models import find_stitched_backbone, unwrapped
from snnet_mm.stitching import Stitch
from snnet_mm.utils import check


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
