"""Input sizes at which one model is trained and tested."""

from collections.abc import Sequence

from torch import nn

from snnet_mm.tasks import task_of
from snnet_mm.utils import check, is_whole

Size = tuple[int, int]  # height and width in pixels


def size_name(size: Size) -> str:
    """Format a size for options and folder names, e.g. ``'168x238'``."""
    return '{}x{}'.format(*size)


def is_size(value: object) -> bool:
    """Return whether a value is a height and a width in whole pixels."""
    pair = isinstance(value, Sequence) and len(value) == 2
    return pair and all(is_whole(side, 1) for side in value)


def window_of(model: nn.Module) -> Size | None:
    """Return the size of a segmentor's sliding windows, or None if it has none."""
    settings = getattr(model, 'test_cfg', None) or {}
    modes = ['slide', 'slide_flip']
    if task_of(model).name == 'depth' and not getattr(model, 'mirrors_images', False):
        modes.remove('slide')  # which mmseg's own depth models ignore
    return tuple(settings['crop_size']) if settings.get('mode') in modes else None


def check_sizes(
    model: nn.Module, sizes: Sequence[Sequence[int]], key: str
) -> tuple[Size, ...]:
    """Validate and return sizes."""
    right = isinstance(sizes, Sequence) and all(map(is_size, sizes))
    found = tuple(map(tuple, sizes)) if right else ()
    once = right and len({*found}) == len(found)
    check(once, key, sizes, 'different pairs of height and width in pixels')
    expected = 'no sizes: detectors and language models are tested at one size'
    check(not found or not task_of(model).unsized, key, sizes, expected)
    return found
