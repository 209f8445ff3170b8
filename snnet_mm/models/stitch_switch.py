"""Finding the stitched backbone in a model, and switching its stitch."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from snnet_mm.stitching import Stitch

from .backbones.stitched_backbone import StitchedBackbone


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


def set_stitches(model: nn.Module, ids: Sequence[int]) -> dict[str, Stitch]:
    """Choose the stitches that the next training iteration trains, one or several.

    A wrapper model that has a method ``on_stitches(stitches)`` gets them all, and runs
    them in one forward; any other model takes one.

    Args:
        model: Any model that holds a stitched backbone.
        ids: The stitch ids.

    Returns:
        The stitches by what their losses are named after: ``'<role>.'``, or ``''`` if
        the only losses are those of one stitch.

    Raises:
        ValueError: If an id is not in the stitching space, if there are several and the
            model trains one at a time, or if they are not what the wrapper wants.
    """
    modules = _all_modules(model)
    space = _the_backbone(model, modules).space
    stitches = [space[i] for i in ids]
    for module in modules:
        if hasattr(type(module), 'on_stitches'):
            return module.on_stitches(stitches)
    if len(stitches) > 1:
        raise ValueError(
            f'stitches {tuple(ids)} were drawn for one iteration, but '
            f'{type(model).__name__} trains one at a time; several go into one forward '
            "of a wrapper, such as type='SandwichWrapper' (config keys: model.type, "
            'StitchSamplingHook.sampler)'
        )
    set_stitch(model, stitches[0].id)
    return {'': stitches[0]}


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
