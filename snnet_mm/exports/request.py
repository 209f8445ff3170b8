"""Export options, checked once."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from snnet_mm.stitching import Selection
from snnet_mm.utils import check, is_number, is_whole

from .formats import FORMATS, PRECISIONS


@dataclass(frozen=True)
class ExportRequest:
    """Stitches to export, and as what.

    Args:
        stitches: Which stitches.
        formats: Some of :data:`FORMATS`.
        precisions: Some of :data:`PRECISIONS`; every format has each.
        bundle: Whether formats that can share the weights of all stitches do.
        verify_on: ``'val'`` or ``'test'``, to evaluate files on that data; None not to.
        limit: Evaluate on only so many images, evenly spread.
        tolerance: What a file may lose; see :func:`lost_points` of ``tolerance.py``.
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
        check(right, '--limit', self.limit, 'whole numbers from 1')
        right = is_number(self.tolerance) and self.tolerance >= 0
        check(right, '--tolerance', self.tolerance, 'numbers from 0')
        known = self.formats and set(self.formats) <= set(FORMATS)
        check(known, '--format', tuple(self.formats), FORMATS)
        known = self.precisions and set(self.precisions) <= set(PRECISIONS)
        check(known, '--precision', tuple(self.precisions), PRECISIONS)
        for name, precision in product(self.formats, self.precisions):
            FORMATS[name].check_precision(name, precision)

    @property
    def shares_weights(self) -> bool:
        """Whether some of the files point into shared weights."""
        return self.bundle and any(FORMATS[f].shares_weights for f in self.formats)

    def files(
        self, stitch_id: int, size: tuple[int, int]
    ) -> Iterator[tuple[str, str, str]]:
        """Yield format, precision and name of every file of a stitch."""
        for name, precision in product(self.formats, self.precisions):
            yield name, precision, FORMATS[name].file_name(stitch_id, size, precision)
