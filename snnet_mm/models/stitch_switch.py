"""Finding the stitched backbone in a model, and switching its stitch."""

from __future__ import annotations

from torch import nn

from .backbones import StitchedBackbone


def find_stitched_backbone(model: nn.Module) -> StitchedBackbone:
    """The stitched backbone anywhere inside a model (DDP, EMA and TTA wrappers too).

    Raises:
        ValueError: If there is none, or more than one.
    """
    return _the_backbone(model, _all_modules(model))


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
    modules = _all_modules(model)
    backbone = _the_backbone(model, modules)
    backbone.set_stitch(stitch_id)
    for module in modules:
        # Asked of the class: nn.Module is slow to say that it has no such attribute.
        if hasattr(type(module), 'on_stitch'):
            module.on_stitch(backbone.active_stitch)


def _all_modules(model: nn.Module) -> list[nn.Module]:
    """What ``model.modules()`` gives, level by level.

    That one nests a generator per level: too slow for a switch at run time.
    """
    modules, seen = [model], {model}
    for module in modules:
        for child in module._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                modules.append(child)
    return modules


def _the_backbone(model: nn.Module, modules: list[nn.Module]) -> StitchedBackbone:
    found = [m for m in modules if isinstance(m, StitchedBackbone)]
    if len(found) != 1:
        raise ValueError(
            f'{type(model).__name__} holds {len(found)} stitched backbones; one is '
            "wanted, such as type='SNNetv2' (config key: model.backbone)"
        )
    return found[0]
