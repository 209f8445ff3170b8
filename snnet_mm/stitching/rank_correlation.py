"""Spearman's rank correlation."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """How well the order of one list tells the order of the other, from -1 to 1.

    NaN if all values of one list are equal.
    """
    if len(set(a)) < 2 or len(set(b)) < 2:
        return math.nan
    return statistics.correlation(_ranks(a), _ranks(b))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]
