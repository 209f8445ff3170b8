"""Find the stitched backbone in a model and switch its stitch."""

from collections.abc import Sequence

from mmengine.model import BaseTTAModel, is_model_wrapper
from torch import nn

from snnet_mm.stitching import Stitch
from snnet_mm.utils import check

from .backbones.stitched_backbone import StitchedBackbone


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside wrappers such as DDP and test-time augmentation."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model


def find_stitched_backbone(model: nn.Module) -> StitchedBackbone:
    """Return the only stitched backbone of a model, looking inside wrappers."""
    found = [m for m in model.modules() if isinstance(m, StitchedBackbone)]
    expected = "a model with one stitched backbone, such as type='SNNetv2'"
    if len(found) > 1:
        expected += ', and no teacher or momentum copy of it'
    held = f'{type(model).__name__} with {len(found)}'
    check(len(found) == 1, 'model.backbone', held, expected)
    return found[0]


def set_stitch(model: nn.Module, stitch_id: int) -> None:
    """Switch a model to a stitch and notify modules that have ``on_stitch(stitch)``.

    Not thread-safe: let each thread run and switch a model of its own.

    Raises:
        ValueError: If the model does not have exactly one stitched backbone, or no such
            stitch.

    Examples:
        >>> set_stitch(model, 3)
    """
    backbone = find_stitched_backbone(model)
    backbone.set_stitch(stitch_id)
    for module in model.modules():
        if hasattr(type(module), 'on_stitch'):
            module.on_stitch(backbone.active_stitch)


def set_input_size(model: nn.Module, size: tuple[int, int] | None) -> None:
    """Make the backbone resize its images to a height and width; None disables it.

    Heads must resize their predictions back to the image size.
    """
    backbone = find_stitched_backbone(model)
    backbone.input_size = None if size is None else tuple(size)


def set_stitches(model: nn.Module, ids: Sequence[int]) -> dict[str, Stitch]:
    """Select one or more stitches for the next training iteration.

    A model with a method ``on_stitches(stitches)``, such as a
    :class:`SandwichWrapper`, receives all of them and runs them in one forward; any
    other model accepts one. Returns the stitches by the prefix of their losses:
    ``'<role>.'``, or ``''`` for a single stitch.
    """
    model = unwrapped(model)
    space = find_stitched_backbone(model).space
    stitches = [space[i] for i in ids]
    if hasattr(model, 'on_stitches'):
        return model.on_stitches(stitches)
    expected = f'one stitch at a time for {type(model).__name__}; several go '
    expected += "into one forward of a wrapper, such as model.type='SandwichWrapper'"
    key = 'default_hooks.stitch_sampling.sampler'
    check(len(stitches) == 1, key, tuple(ids), expected)
    set_stitch(model, stitches[0].id)
    return {'': stitches[0]}
