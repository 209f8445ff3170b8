"""Beginnings that the routes of several stitches share: a tree of prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile

from .routes import Step, Stitch


def visiting_order(stitches: Iterable[Stitch]) -> list[Stitch]:
    """Stitches ordered so that those whose routes begin alike are neighbours.

    That is a depth-first walk of their prefix tree: what a stitch shares with any
    later one, it shares with all in between.
    """
    return sorted(stitches, key=lambda s: [_sort_key(step) for step in s.steps])


def common_prefix(a: Sequence[Step], b: Sequence[Step]) -> int:
    """Number of steps at the beginning of two routes that are the same."""
    pairs = zip(a, b, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _sort_key(step: Step) -> tuple[int, int, str]:
    """Makes blocks and names of layers comparable."""
    return (-1, -1, step) if isinstance(step, str) else (*step, '')
