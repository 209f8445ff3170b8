"""Choice of the best stitch, size and precision within a budget, with a prior."""

from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from snnet_mm.runtime.budgets import UNITS, Budget, best_within, parse_budget
from snnet_mm.utils import check
from snnet_mm.utils.machine import devices

from .metrics import NONE
from .space import StitchingSpace
from .table import StitchRow, StitchTable, cost_column

# Penalty for a change of anchor at the very end of a route, as a fraction of the FLOPs
# range between its anchors; for earlier changes it is proportional to their depth.
INTO_SLOWER, INTO_FASTER = 0.3, 0.2
PRIOR_LOSES = (
    'a guess, which on published models lost 0.5 points of mIoU or top-1 on average '
    'and 2.4 at most; --stitch-id all measures'
)


class Choice(NamedTuple):
    """A stitch, its input size and precision, and the reason for the choice."""

    id: int
    input_size: tuple[int, int]
    precision: str
    reason: str


def pick_stitch(
    space: StitchingSpace,
    budget: str | Budget,
    table: StitchTable,
    on: Collection[str] | None = None,
) -> Choice:
    """Choose the best stitch within a budget among all sizes and precisions.

    In a table without metrics, :func:`prior_scores` ranks the stitches, which is a
    guess. Ties go to the cheapest stitch, then to the first row.

    Args:
        space: The stitching space.
        budget: A budget such as ``'120G'``, ``'60M'``, ``'25ms'`` or ``'50%'``, a share
            of the FLOPs of the largest stitch in the table.
        table: Costs of the stitches and, if they were evaluated, their metrics.
        on: Names of devices that the stitch may run on. Default: those of this machine.

    Raises:
        ValueError: If no stitch is within the budget, or other devices measured its
            milliseconds.
    """
    budget = budget if isinstance(budget, Budget) else parse_budget(budget)
    budget = budget.of(cost_column(table.rows, 'flops').values())
    table.check_space(space)
    evidence = f'by the prior, {PRIOR_LOSES}'
    if guessed := table.metric is None:
        table = table.at(table.input_size)
        scores = prior_scores(space, table.column('flops'))
        prior = {i: dict(prior=score) for i, score in scores.items()}
        table = table.with_metrics(prior, lower_is_better=(NONE,))
    front, unit = table.front(budget.cost), UNITS[budget.cost]
    if budget.cost == 'latency':
        _check_devices(budget, front, devices() if on is None else on)
    rows = {row.key: row for row in front}
    costs = {key: getattr(row, budget.cost) for key, row in rows.items()}
    key = best_within(costs, budget.limit)
    if key is None:
        raise ValueError(
            f'budget {budget}: no {"" if guessed else "evaluated "}stitch is that '
            f'cheap; the cheapest is {_describe(table, front[0], budget.cost)}'
        )
    if not guessed:
        evidence = (
            f'{table.metric} {table.score(rows[key]):.4g}, the best of '
            f'{len(table.ranked())} evaluated stitches, sizes and precisions'
        )
    what = _describe(table, rows[key], budget.cost)
    return Choice(*key, f'budget {budget} {unit.meaning}: {what}, {evidence}')


def _check_devices(
    budget: Budget, rows: Sequence[StitchRow], on: Collection[str]
) -> None:
    """Raise if a device that is not in ``on`` measured the milliseconds of rows."""
    for row in rows:
        device = row.setup.device if row.setup else 'an unknown device'
        expected = f'milliseconds of {" or ".join(on)}, not of {device}; measure them '
        expected += 'with tools/analysis_tools/stitch_table.py CONFIG --latency'
        check(device.startswith((*on,)), '--budget', str(budget), expected)


def _describe(table: StitchTable, row: StitchRow, cost: str) -> str:
    """Describe a stitch, with its size and precision where those of the table vary."""
    words = f'stitch {row.id} ({row.route}, {UNITS[cost].budget(getattr(row, cost))})'
    if table.shared('input_size') is None:
        words += ' on images of {}x{}'.format(*row.input_size)
    return words + ('' if table.shared('precision') else f' in {row.precision}')


def prior_scores(space: StitchingSpace, flops: Mapping[int, float]) -> dict[int, float]:
    """Return a prior score for every stitch; higher is likely to be better.

    The anchors score 0, 1, 2 and so on. Other stitches interpolate linearly in FLOPs
    between their fastest and slowest anchor. Every change of anchor is penalised in
    proportion to its depth, as SN-Netv2 finds in appendix E, and more into the slower
    anchor. The two weights were chosen on the authors' ADE20K results;
    docs/how_to/choosing.md evaluates the ranking.
    """
    expected = 'results, to rank the stitches of a ' + type(space).__name__
    check(space.has_prior, '--results', None, expected)
    anchor_flops = [flops[i] for i in space.anchor_ids]
    scores = {}
    for stitch in space:
        anchors = [segment.anchor for segment in stitch.segments]
        low, high = min(anchors), max(anchors)
        min_flops, max_flops = anchor_flops[low], anchor_flops[high]
        place = (flops[stitch.id] - min_flops) / ((max_flops - min_flops) or 1)
        penalty = sum(
            (INTO_SLOWER if after.anchor > before.anchor else INTO_FASTER)
            * (before.end / space.depths[before.anchor])
            for before, after in pairwise(stitch.segments)
        )
        scores[stitch.id] = low + (high - low) * (place - penalty)
    return scores
