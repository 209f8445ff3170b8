"""Choosing among stitches at several input sizes."""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from snnet_mm.runtime.budgets import Budget
from snnet_mm.utils import check

from .results import StitchResults
from .selection import Choice, choose
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
    ranked_by = {(r.metric, r.space, r.higher_is_better) for r in results}
    allowed = 'results of one stitching space, ranked by one metric'
    check(len(ranked_by) == 1, '--results', sorted(ranked_by), allowed)
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
    found, refused = [], []
    for of_size in results:
        try:
            choice = choose(space, budget, results=of_size)
        except ValueError as error:  # of this size nothing is that cheap
            refused.append(error)
            continue
        row = next(r for r in of_size.stitches if r.id == choice.id)
        score = of_size.score(row) * (1 if of_size.higher_is_better else -1)
        size = of_size.input_size
        reason = f'{choice.reason}; images of {size[0]}x{size[1]}'
        pair = SizedStitch(choice.id, size)
        order = row.deviation is None, score, -row.flops
        found.append((order, pair, Choice(choice.id, reason)))
    if not found:
        raise refused[-1]
    return max(found, key=lambda of: of[0])[1:]
