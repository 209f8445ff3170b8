"""Errors of necks and heads that expect other maps than they receive."""

import re
from collections.abc import Sequence
from inspect import signature
from traceback import walk_tb

import torch
from torch import Tensor, nn

from snnet_mm.models import StitchedBackbone, set_stitch, unwrapped
from snnet_mm.utils import refusal

from .parts import as_shipped, copy_on_meta
from .sizes import empty_images

# Raised by layers, and by necks and heads that count or index their maps.
MISFITS = RuntimeError, AssertionError, IndexError
# Settings of necks and heads for the channels of their maps.
WIDTHS = 'in_channels', 'embed_dim', 'embed_dims'


@torch.no_grad()
def check_auxiliary_heads(model: nn.Module, input_size: tuple[int, int]) -> None:
    """Raise if an auxiliary head, which only training runs, expects other maps.

    Costs are counted on all other heads, which raises the same error.

    Raises:
        ValueError: Contains the channels of the maps and the head's config key.
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

    If a neck or head takes other channels than its maps have, the error contains these
    channels and the config key of those that it takes. ``root`` is the copy of the
    model that raised the error. Default: the outermost module in its traceback.
    """
    parts, backbone = modules_in(error, root), getattr(model, 'backbone', None)
    readers = [
        (path, part, name)
        for path, part in parts
        if path and not path.startswith('backbone') and (name := _width_key(part))
    ]
    stitched = isinstance(backbone, StitchedBackbone)
    if readers and stitched and (backbone.out, backbone.maps_of) == ('maps', 'slowest'):
        # A head may hold others; necks and heads may also hold parts of such settings.
        heads = [r for r in readers if type(r[1]).__name__.endswith('Head')]
        path, part, name = heads[-1] if heads else readers[0]
        has_neck = path != 'neck' and getattr(model, 'neck', None) is not None
        widths = _map_widths(model, input_size, has_neck)
        places = getattr(part, 'in_index', None)
        places = [places] if isinstance(places, int) else places or range(len(widths))
        read = [widths[i] for i in places if -len(widths) <= i < len(widths)]
        found = getattr(part, name)
        taken = {*found} if isinstance(found, Sequence) else {found}
        # mmsegmentation sums the channels of maps that it joins.
        if not taken <= {*read, sum(read)}:
            expected = f'{", ".join(map(str, read))}, the channels of the maps of the '
            expected += 'neck' if has_neck else 'backbone'
            key = 'model.' + re.sub(r'\.(\d+)', r'[\1]', path)
            return refusal(f'{key}.{name}', found, expected)
    expected = 'a size the model can run, and matching in_channels, in_index, '
    expected += f'backbone.out and backbone.maps_of: {reason_of(error)}'
    for path, part in parts[-1:]:
        where = '.'.join(filter(None, ('model', path)))
        expected += f' (in {where}, {type(part).__name__}({part.extra_repr()}))'
    return refusal('input_size', input_size, expected)


def reason_of(error: Exception) -> str:
    """Return the type and the first line of an error."""
    return f'{type(error).__name__}: {error}'.partition('\n')[0]


def modules_in(
    error: Exception, root: nn.Module | None = None
) -> list[tuple[str, nn.Module]]:
    """Return the paths and modules of all calls in the traceback of an error."""
    frames = (frame.f_locals.get('self') for frame, _ in walk_tb(error.__traceback__))
    parts = [part for part in frames if isinstance(part, nn.Module)]
    root = root or next(iter(parts), nn.Module())
    paths = {part: name for name, part in root.named_modules()}
    return [(paths.get(part, ''), part) for part in parts]


def _width_key(part: nn.Module) -> str | None:
    """Return the setting of a neck or head for the channels of its maps."""
    if type(part).__module__.startswith(('torch.', 'mmcv.')):
        return None
    return next((name for name in WIDTHS if getattr(part, name, None)), None)


def _map_widths(
    model: nn.Module, input_size: tuple[int, int], has_neck: bool
) -> list[int]:
    """Return the channels of all maps of a model's backbone, or of its neck."""
    copy = copy_on_meta(model, model)
    copy.backbone.eval_maps = tuple(range(len(copy.backbone.out_indices)))
    with as_shipped(copy):
        maps = copy.backbone(empty_images(copy, input_size, batch=1))
        maps = copy.neck(maps) if has_neck else maps
    return [(m if isinstance(m, Tensor) else m[0]).shape[1] for m in maps]
