"""Finding the stitched backbone in a model, and switching its stitch."""

from __future__ import annotations

from torch import nn

from .backbones import StitchedBackbone


def find_stitched_backbone(model: nn.Module) -> StitchedBackbone:
    """The stitched backbone anywhere inside a model (DDP, EMA and TTA wrappers too).

    Raises:
        ValueError: If there is none, or more than one.
    """
    found = [m for m in model.modules() if isinstance(m, StitchedBackbone)]
    if len(found) != 1:
        raise ValueError(
            f'{type(model).__name__} holds {len(found)} stitched backbones; one is '
            "wanted, such as type='SNNetv2' (config key: model.backbone)"
        )
    return found[0]


def set_stitch(model: nn.Module, stitch_id: int) -> None:
    """Switch a model to another stitch.

    Every module with a method ``on_stitch(stitch)`` is told, so that parts which
    depend on the stitch follow.

    Args:
        model: Any model that holds a stitched backbone.
        stitch_id: The stitch id.

    Raises:
        ValueError: If the id is not in the stitching space.
    """
    backbone = find_stitched_backbone(model)
    backbone.set_stitch(stitch_id)
    for module in model.modules():
        if hasattr(module, 'on_stitch'):
            module.on_stitch(backbone.active_stitch)
