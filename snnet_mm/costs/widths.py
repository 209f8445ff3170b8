"""Errors of necks and heads that expect other maps than they receive."""

import re
from collections.abc import Sequence
from inspect import signature
from traceback import walk_tb

import torch
from torch import Tensor, nn

from snnet_mm.models import StitchedBackbone, set_stitch, unwrapped
from snnet_mm.utils import refusal

from .copies import copy_on_meta
from .parts import as_shipped, empty_images

# Raised by layers, and by necks and heads that count or index their maps.
MISFITS = RuntimeError, AssertionError, IndexError
# Arguments of necks and heads for the channels of their maps.
WIDTHS = 'in_channels', 'embed_dim', 'embed_dims'
Parts = Sequence[tuple[str, nn.Module]]


@torch.no_grad()
def check_auxiliary_heads(model: nn.Module, input_size: tuple[int, int]) -> None:
    """Raise if an auxiliary head, which only training runs, expects other maps.

    Costs are counted on all other heads, which raises the same error.

    Raises:
        ValueError: With the channels of the maps and the config key of the head's.
    """
    model = unwrapped(model)
    backbone = getattr(model, 'backbone', None)
    stitched = isinstance(backbone, StitchedBackbone)
    if not stitched or getattr(model, 'auxiliary_head', None) is None:
        return
    copy = copy_on_meta(model, model)
    copy.backbone.eval_maps = tuple(range(len(backbone.out_indices)))
    heads = copy.auxiliary_head
    for stitch in backbone.space.anchor_ids:
        with as_shipped(copy):
            set_stitch(copy, stitch)
            try:
                maps = copy.extract_feat(empty_images(copy, input_size, batch=1))
                for head in heads if isinstance(heads, nn.ModuleList) else [heads]:
                    head = getattr(head, 'active', head)
                    # Others need more than maps, such as another head's output.
                    if len(signature(head.forward).parameters) == 1:
                        head.forward(maps)
            except MISFITS as error:
                raise explained(error, copy, input_size, copy) from error


def explained(
    error: Exception,
    model: nn.Module,
    input_size: tuple[int, int],
    root: nn.Module | None = None,
) -> ValueError:
    """Return the error to raise if a model does not run at a size.

    If a neck or head expects other channels than its maps have, it contains these
    channels and the config key of those expected. ``root`` is the copy of the model
    that raised the error. Default: the outermost module in its traceback.
    """
    parts = modules_in(error, root)
    if (misfit := _misfit(parts, model, input_size)) is not None:
        return misfit
    allowed = 'a size the model can run, fitting in_channels, backbone.out and '
    allowed += f'backbone.maps_of: {reason_of(error)}'
    for path, part in parts[-1:]:
        allowed += f' (in model.{path}, {type(part).__name__}({part.extra_repr()}))'
    return refusal('input_size', input_size, allowed)


def reason_of(error: Exception) -> str:
    """Return the type and the first line of an error."""
    return f'{type(error).__name__}: {error}'.partition('\n')[0]


def modules_in(error: Exception, root: nn.Module | None = None) -> Parts:
    """Return the paths and modules of all calls in the traceback of an error."""
    frames = (frame.f_locals.get('self') for frame, _ in walk_tb(error.__traceback__))
    parts = [part for part in frames if isinstance(part, nn.Module)]
    root = root or next(iter(parts), nn.Module())
    paths = {part: name for name, part in root.named_modules()}
    return [(paths.get(part, ''), part) for part in parts]


def _misfit(
    parts: Parts, model: nn.Module, input_size: tuple[int, int]
) -> ValueError | None:
    """Return the error of a neck or head that expects other channels, if it is one."""
    backbone = getattr(model, 'backbone', None)
    if not isinstance(backbone, StitchedBackbone) or backbone.out != 'maps':
        return None
    readers = ((path, part, _width_key(part)) for path, part in parts)
    readers = [r for r in readers if r[2] and r[0] and not r[0].startswith('backbone')]
    if not readers or readers[0][0].startswith('neck.'):
        return None
    # A head may hold others; necks and heads may also hold parts of equal arguments.
    heads = [r for r in readers if type(r[1]).__name__.endswith('Head')]
    path, part, name = heads[-1] if heads else readers[0]
    inner = getattr(parts[-1][1], 'in_channels', None)
    found, widths = getattr(part, name, inner), _map_widths(model, input_size, path)
    place = getattr(part, 'in_index', None)
    key = 'model.' + re.sub(r'\.(\d+)', r'[\1]', path)
    source = 'backbone' if path == 'neck' or not _has_neck(model) else 'neck'
    places = [place] if isinstance(place, int) else place or ()
    if not all(-len(widths) <= i < len(widths) for i in places):
        allowed = f'0 to {len(widths) - 1}, as the {source} returns {len(widths)} maps'
        return refusal(f'{key}.in_index', place, allowed)
    listed = isinstance(found, Sequence)
    found = [*found] if listed else found
    wanted = [widths[i] for i in places or (range(len(widths)) if listed else (-1,))]
    if found in (wanted, sum(wanted)):  # mmsegmentation sums those that it joins
        return None
    wanted = wanted if listed or len(wanted) > 1 else wanted[0]
    allowed = f'{wanted}, the channels of the maps of the {source} that it reads'
    return refusal(f'{key}.{name}', found, allowed)


def _width_key(part: nn.Module) -> str | None:
    """Return the argument of a neck's or head's class for the channels of its maps."""
    if type(part).__module__.startswith(('torch.', 'mmcv.')):
        return None
    classes = [kind for kind in type(part).__mro__ if '__init__' in vars(kind)]
    names = {name for kind in classes for name in signature(kind.__init__).parameters}
    return next((name for name in WIDTHS if name in names), None)


def _map_widths(model: nn.Module, input_size: tuple[int, int], path: str) -> list[int]:
    """Return the channels of the maps that the part of a model at a path receives."""
    copy = copy_on_meta(model, model)
    copy.backbone.eval_maps = tuple(range(len(copy.backbone.out_indices)))
    ids = copy.backbone.space.anchor_ids
    own = re.search(r'\.parts\.(\d+)', path)  # one part for each end anchor
    with as_shipped(copy):
        set_stitch(copy, ids[min(int(own[1]), len(ids) - 1)] if own else ids[-1])
        images = empty_images(copy, input_size, batch=1)
        maps = copy.backbone(images)
        maps = copy.neck(maps) if path != 'neck' and _has_neck(copy) else maps
    first = (m if isinstance(m, Tensor) else m[0] for m in maps)
    return [x.shape[1] for x in first]


def _has_neck(model: nn.Module) -> bool:
    return getattr(model, 'neck', None) is not None
