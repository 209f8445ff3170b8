"""Find the stitched backbone in a model and switch its stitch."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

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
    return _Tree(model).backbone


def set_stitch(model: nn.Module, stitch_id: int) -> None:
    """Switch a model to a stitch and notify modules that have ``on_stitch(stitch)``.

    Not thread-safe: let each thread run and switch a model of its own.

    Args:
        model: A model with one stitched backbone.
        stitch_id: Id of the stitch.

    Raises:
        ValueError: If the model does not have exactly one stitched backbone, or no such
            stitch.

    Examples:
        >>> set_stitch(model, 3)
    """
    _Tree(model).set_stitch(stitch_id)


def set_input_size(model: nn.Module, size: tuple[int, int] | None) -> None:
    """Make the backbone resize its images to another height and width.

    Heads must resize their predictions back to the image size, as segmentation, depth
    and classification heads do. None disables resizing.
    """
    backbone = find_stitched_backbone(model)
    backbone.input_size = None if size is None else tuple(size)


def set_stitches(model: nn.Module, ids: Sequence[int]) -> dict[str, Stitch]:
    """Select one or more stitches for the next training iteration.

    A wrapper with a method ``on_stitches(stitches)`` receives all of them and runs them
    in one forward; any other model accepts one. Returns the stitches by the prefix of
    their losses: ``'<role>.'``, or ``''`` for a single stitch.
    """
    tree = _Tree(model)
    stitches = [tree.backbone.space[i] for i in ids]
    for wrapper in tree.having('on_stitches'):
        return wrapper.on_stitches(stitches)
    wanted = f'one stitch at a time for {type(unwrapped(model)).__name__}; several go '
    wanted += "into one forward of a wrapper, such as model.type='SandwichWrapper'"
    key = 'default_hooks.stitch_sampling.sampler'
    check(len(stitches) == 1, key, tuple(ids), wanted)
    tree.set_stitch(stitches[0].id)
    return {'': stitches[0]}


class _Tree:
    """The modules of a model, collected in one pass, and its stitched backbone.

    ``model.modules()`` nests one generator per level: too slow for run-time switches.
    """

    def __init__(self, model: nn.Module) -> None:
        self._by_class: dict[type, list[nn.Module]] = defaultdict(list)
        modules, seen = [model], {None, model}
        for module in modules:
            self._by_class[type(module)].append(module)
            for child in module._modules.values():
                if child not in seen:
                    seen.add(child)
                    modules.append(child)
        pairs = self._by_class.items()
        found = [m for c, of in pairs if issubclass(c, StitchedBackbone) for m in of]
        wanted = "a model with one stitched backbone, such as type='SNNetv2'"
        if len(found) > 1:
            wanted += ', and no teacher or momentum copy of it'
        held = f'{type(model).__name__} with {len(found)}'
        check(len(found) == 1, 'model.backbone', held, wanted)
        (self.backbone,) = found

    def having(self, method: str) -> Iterator[nn.Module]:
        """Yield the modules whose class defines a method."""
        for kind, modules in self._by_class.items():
            if hasattr(kind, method):
                yield from modules

    def set_stitch(self, stitch_id: int) -> None:
        """See :func:`set_stitch`."""
        self.backbone.set_stitch(stitch_id)
        for module in self.having('on_stitch'):
            module.on_stitch(self.backbone.active_stitch)
