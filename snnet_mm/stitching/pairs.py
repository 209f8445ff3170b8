"""Choosing among stitches at several input sizes."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from snnet_mm.runtime.budgets import Budget
from snnet_mm.utils import check

from .results import StitchResults, check_comparable
from .selection import Choice, choose_among
from .space import StitchingSpace


class SizedStitch(NamedTuple):
    """A stitch, and height and width in pixels that it runs at."""

    id: int
    input_size: tuple[int, int] | None = None


def joint_columns(
    results: Sequence[StitchResults], cost: str = 'flops'
) -> tuple[dict[SizedStitch, float], dict[SizedStitch, float]]:
    """A cost and the scores of all measured pairs of a stitch and a size.

    Results are of one model at one size each, ranked by one metric.
    """
    check_comparable(results)
    sizes = [r.input_size for r in results]
    check(len({*sizes}) == len(sizes), '--results', sizes, 'each size once')
    costs, scores = {}, {}
    for size, of_size in zip(sizes, results, strict=True):
        column = of_size.column(cost)
        for i, score in of_size.scores().items():
            pair = SizedStitch(i, size)
            costs[pair], scores[pair] = column[i], score
    return costs, scores


def choose_pair(
    space: StitchingSpace,
    budget: str | Budget,
    results: Sequence[StitchResults],
    lower_is_better: Collection[str] | None = None,
) -> tuple[SizedStitch, Choice]:
    """The best stitch and size within a budget; see :func:`choose`.

    Args:
        space: The stitching space.
        budget: See :func:`pick`.
        results: Results of one model, at one size each.
        lower_is_better: See :func:`metric_directions`.
    """
    results = [r.ranked_by(lower_is_better=lower_is_better) for r in results]
    joint_columns(results)  # refuses what cannot be compared
    at = {r.input_size: (None, r) for r in results}
    size, choice = choose_among(space, budget, at)
    reason = f'{choice.reason}; images of {size[0]}x{size[1]}'
    return SizedStitch(choice.id, size), Choice(choice.id, reason)
