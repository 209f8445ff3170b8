"""Export options, validated once."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from snnet_mm.stitching import Selection
from snnet_mm.utils import check, is_number, is_whole

from .formats import FORMATS, PRECISIONS


@dataclass(frozen=True)
class ExportRequest:
    """Stitches to export, with formats, precisions and verification.

    Args:
        stitches: The stitches.
        formats: Keys of :data:`FORMATS`. Default: ``'mm'``.
        precisions: Some of :data:`PRECISIONS`, for every format. Default: ``'fp32'``.
        bundle: Whether all stitches share weights, in formats that support it.
            Default: False.
        verify_on: Data to evaluate files on, ``'val'`` or ``'test'``. Default: None,
            which skips the evaluation.
        limit: Number of images to evaluate on, evenly spread. Default: all.
        tolerance: Largest allowed loss; see :func:`lost_points`. Default: 0.5.
    """

    stitches: Selection
    formats: Sequence[str] = ('mm',)
    precisions: Sequence[str] = ('fp32',)
    bundle: bool = False
    verify_on: str | None = None
    limit: int | None = None
    tolerance: float = 0.5

    def __post_init__(self) -> None:
        modes = None, 'val', 'test'
        check(self.verify_on in modes, '--verify-on', self.verify_on, modes)
        right = self.limit is None or is_whole(self.limit, 1)
        check(right, '--limit', self.limit, 'a whole number from 1')
        right = is_number(self.tolerance) and self.tolerance >= 0
        check(right, '--tolerance', self.tolerance, 'a number from 0')
        known = self.formats and set(self.formats) <= set(FORMATS)
        check(known, '--format', tuple(self.formats), FORMATS)
        known = self.precisions and set(self.precisions) <= set(PRECISIONS)
        check(known, '--precision', tuple(self.precisions), PRECISIONS)
        for name in self.formats:
            format = FORMATS[name]
            right = format.is_graph or {*self.precisions} == {'fp32'}
            allowed = f'fp32 for {name}: mm casts checkpoints when they run (--amp)'
            check(right, '--precision', self.precisions, allowed)
            missing = [n for n in format.packages if find_spec(n) is None]
            allowed = f"an installed one: pip install -e '.[{name}]' for "
            check(not missing, '--format', name, allowed + ', '.join(missing))
