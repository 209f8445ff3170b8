"""Finding the stitched backbone in a model, and switching its stitch."""

from collections import defaultdict
from collections.abc import Sequence

from mmengine.model import BaseTTAModel, is_model_wrapper
from torch import nn

from snnet_mm.stitching import Stitch
from snnet_mm.utils import check

from .backbones.stitched_backbone import StitchedBackbone


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside wrappers such as DDP's and test-time augmentation's."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model


def find_stitched_backbone(model: nn.Module) -> StitchedBackbone:
    """Return the one stitched backbone in a model, inside any wrappers."""
    return _find(model)[0]


def set_stitch(model: nn.Module, stitch_id: int) -> None:
    """Switch a model to another stitch, and tell modules with ``on_stitch(stitch)``."""
    backbone, listeners = _find(model, 'on_stitch')
    backbone.set_stitch(stitch_id)
    for module in listeners:
        module.on_stitch(backbone.active_stitch)


def set_input_size(model: nn.Module, size: tuple[int, int] | None) -> None:
    """Let the backbone run at another height and width than that of its images.

    It resizes them, and heads bring what they predict back to the size of the images,
    as those for segmentation, depth and classes do. None runs images as they are.
    """
    _find(model)[0].input_size = None if size is None else tuple(size)


def set_stitches(model: nn.Module, ids: Sequence[int]) -> dict[str, Stitch]:
    """Choose the stitches that the next training iteration trains, one or several.

    A wrapper model that has a method ``on_stitches(stitches)`` gets them all, and runs
    them in one forward; any other model takes one. They are returned by the prefix of
    their losses, ``'<role>.'``, or ``''`` where there is only one.
    """
    backbone, wrappers = _find(model, 'on_stitches')
    stitches = [backbone.space[i] for i in ids]
    for wrapper in wrappers:
        return wrapper.on_stitches(stitches)
    wanted = f'one stitch at a time for {type(unwrapped(model)).__name__}; several go '
    wanted += "into one forward of a wrapper, such as model.type='SandwichWrapper'"
    key = 'default_hooks.stitch_sampling.sampler'
    check(len(stitches) == 1, key, tuple(ids), wanted)
    set_stitch(model, stitches[0].id)
    return {'': stitches[0]}


def _find(
    model: nn.Module, method: str = ''
) -> tuple[StitchedBackbone, list[nn.Module]]:
    """Return the stitched backbone, and all modules with a method, in one pass.

    ``model.modules()`` nests a generator per level: too slow for a switch at run time.
    """
    modules, seen = [model], {model}
    by_class: dict[type, list[nn.Module]] = defaultdict(list)
    for module in modules:
        by_class[type(module)].append(module)
        for child in module._modules.values():
            if child is not None and child not in seen:
                seen.add(child)
                modules.append(child)
    backbones, listeners = [], []
    for kind, members in by_class.items():
        backbones += members if issubclass(kind, StitchedBackbone) else []
        listeners += members if method and hasattr(kind, method) else []
    wanted = "a model with one stitched backbone, such as type='SNNetv2'"
    if len(backbones) > 1:
        wanted += ', and no teacher or momentum copy of it'
    found = f'{type(model).__name__} with {len(backbones)}'
    check(len(backbones) == 1, 'model.backbone', found, wanted)
    return backbones[0], listeners
