"""Finding the stitched backbone in a model, and switching its stitch."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial, update_wrapper
from threading import Lock, get_ident
from weakref import WeakKeyDictionary

from mmengine.model import BaseTTAModel, is_model_wrapper
from torch import nn

from snnet_mm.stitching import Stitch
from snnet_mm.utils import check

from .backbones.stitched_backbone import StitchedBackbone


class _FairLock:
    """A reentrant lock that a waiting thread gets before its last holder.

    With an RLock a switch may wait for many forwards of a loop.
    """

    def __init__(self) -> None:
        self._next, self._now = Lock(), Lock()
        self._holder, self._depth = None, 0

    def __enter__(self) -> None:
        if self._holder != get_ident():
            with self._next:
                self._now.acquire()
            self._holder = get_ident()
        self._depth += 1

    def __exit__(self, *_) -> None:
        self._depth -= 1
        if not self._depth:
            self._holder = None
            self._now.release()


# Of forwards and switches. By backbone, so that copies of a model have their own.
_LOCKS: WeakKeyDictionary[StitchedBackbone, _FairLock] = WeakKeyDictionary()


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside wrappers such as DDP's and test-time augmentation's."""
    while is_model_wrapper(model) or isinstance(model, BaseTTAModel):
        model = model.module
    return model


def find_stitched_backbone(model: nn.Module) -> StitchedBackbone:
    """Return the one stitched backbone in a model, inside any wrappers."""
    return _Tree(model).backbone


def set_stitch(model: nn.Module, stitch_id: int) -> None:
    """Switch a model to another stitch, and tell modules with ``on_stitch(stitch)``.

    It is safe from any thread: every forward runs the stitch that was active when it
    began, in all parts of the model. Forwards and switches of a model take turns, so
    that a switch waits for the end of a forward of another thread. This begins with
    the first switch, or with :func:`init_model`. A forward may switch its own model, as
    :class:`SandwichWrapper` does, but must not wait for another thread that runs or
    switches this model.

    Args:
        model: A model with one stitched backbone.
        stitch_id: Id of the stitch.

    Raises:
        ValueError: If the model has no stitched backbone, or no such stitch.

    Examples:
        >>> set_stitch(model, 3)
    """
    _Tree(model).set_stitch(stitch_id)


def set_input_size(model: nn.Module, size: tuple[int, int] | None) -> None:
    """Let the backbone run at another height and width than its images have.

    It resizes them, and heads bring what they predict back to the size of the images,
    as those for segmentation, depth and classes do. None runs images as they are.
    """
    backbone = find_stitched_backbone(model)
    with _lock_of(backbone):
        backbone.input_size = None if size is None else tuple(size)


def set_stitches(model: nn.Module, ids: Sequence[int]) -> dict[str, Stitch]:
    """Choose the stitches that the next training iteration trains, one or several.

    A wrapper model that has a method ``on_stitches(stitches)`` gets them all, and runs
    them in one forward; any other model takes one. They are returned by the prefix of
    their losses, ``'<role>.'``, or ``''`` where there is only one.
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
    """The modules of a model, from one walk, and the stitched backbone among them.

    ``model.modules()`` nests a generator per level: too slow for a switch at run time.
    """

    def __init__(self, model: nn.Module) -> None:
        self._by_class: dict[type, list[nn.Module]] = defaultdict(list)
        self._parents: dict[nn.Module, nn.Module | None] = {model: None}
        modules = [model]
        for module in modules:
            self._by_class[type(module)].append(module)
            for child in module._modules.values():
                if child is not None and child not in self._parents:
                    self._parents[child] = module
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
        """Yield the modules with a method."""
        for kind, modules in self._by_class.items():
            if hasattr(kind, method):
                yield from modules

    def set_stitch(self, stitch_id: int) -> None:
        """See :func:`set_stitch`."""
        with _lock_of(self.backbone):
            self._lock_forwards()
            self.backbone.set_stitch(stitch_id)
            for module in self.having('on_stitch'):
                module.on_stitch(self.backbone.active_stitch)

    def _lock_forwards(self) -> None:
        """Let the forwards of all modules around the backbone hold its lock.

        Hooks of torch would not release it after an interrupt (Ctrl-C).
        """
        module = self.backbone
        while (module := self._parents[module]) is not None:
            # With test-time augmentation a step has several forwards.
            name = 'test_step' if isinstance(module, BaseTTAModel) else 'forward'
            run = getattr(module, name)
            known = isinstance(run, partial) and run.func is _locked
            known = known and run.args[0] is self.backbone
            if not (known or is_model_wrapper(module)):
                locked = partial(_locked, self.backbone, run)
                setattr(module, name, update_wrapper(locked, run))


def _locked(backbone: StitchedBackbone, run: Callable, *args, **kwargs) -> object:
    with _lock_of(backbone):
        return run(*args, **kwargs)


def _lock_of(backbone: StitchedBackbone) -> _FairLock:
    return _LOCKS.setdefault(backbone, _FairLock())
