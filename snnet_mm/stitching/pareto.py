"""The Pareto front of scores over costs, and how well their orders agree."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence


def drop_nan(scores: Mapping[int, float], name: str = 'score') -> dict[int, float]:
    """Leave out stitches whose score is NaN, which is neither good nor bad."""
    numbers = {i: score for i, score in scores.items() if not math.isnan(score)}
    if scores and not numbers:
        raise ValueError(
            f'{name} is NaN for all {len(scores)} stitches: none can be chosen by it'
        )
    return numbers


def pareto_front(
    costs: Mapping[int, float],
    scores: Mapping[int, float],
    higher_is_better: bool = True,
) -> list[int]:
    """Stitch ids on the Pareto front, ascending in cost.

    Their score is strictly better than that of every stitch of equal or lower cost; of
    stitches equal in both it is the smallest id. NaN is never on the front.

    Args:
        costs: Cost of each stitch by id, in any unit.
        scores: Score of each stitch by id.
        higher_is_better: Whether a larger score is better.
    """
    unknown = sorted(set(scores) - set(costs))
    if unknown:
        raise ValueError(f'stitches {unknown} have a score but no cost')
    sign, front = 1 if higher_is_better else -1, []
    scores = drop_nan(scores)
    for stitch_id in sorted(scores, key=lambda i: (costs[i], -sign * scores[i], i)):
        if not front or sign * (scores[stitch_id] - scores[front[-1]]) > 0:
            front.append(stitch_id)
    return front


def rank_correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation of two lists; NaN if all values of one are equal."""
    if len(set(a)) < 2 or len(set(b)) < 2:
        return math.nan
    return statistics.correlation(_ranks(a), _ranks(b))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 0; equal values share the mean of theirs."""
    ordered = sorted(values)
    return [ordered.index(value) + (ordered.count(value) - 1) / 2 for value in values]
