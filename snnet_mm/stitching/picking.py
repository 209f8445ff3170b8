"""Choice of the best stitch, size and precision within a budget, with a prior."""

import logging
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from snnet_mm.runtime.budgets import UNITS, Budget, parse_budget
from snnet_mm.utils import check
from snnet_mm.utils.machine import devices

from .cost_table import CostTable
from .results import StitchResults, check_comparable, variant_of
from .space import StitchingSpace

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
    precision: str | None
    reason: str


class _NoneWithinError(ValueError):
    """Raised if no stitch of a table is within the budget."""


def pick(
    space: StitchingSpace,
    budget: str | Budget,
    costs: CostTable | None = None,
    results: StitchResults | Sequence[StitchResults] | None = None,
    on: Sequence[str] | None = None,
) -> Choice:
    """Choose the best stitch within a budget among all given sizes and precisions.

    Without results, :func:`prior_scores` ranks the stitches, which is a guess. Ties go
    to the cheapest stitch, then to the first table. Milliseconds that another device
    measured are used with a warning.

    Args:
        space: The stitching space.
        budget: A budget such as ``'120G'``, ``'60M'``, ``'25ms'`` or ``'50%'``, a share
            of the FLOPs of the largest stitch in the tables.
        costs: Costs of the stitches; by default those in the results.
        results: Results; without ``costs`` also several, one per size and precision.
        on: Names of devices that the stitch may run on. Default: those of this machine.
    """
    budget = budget if isinstance(budget, Budget) else parse_budget(budget)
    results = listed(results)
    needed = 'results or a cost table, which budgets go by'
    check(results or costs, '--results', None, needed)
    if results:
        check_comparable(results)
    pairs = [(r, r) for r in results]
    if costs is not None:
        check(len(results) < 2, '--costs', 'a table', 'none with several results')
        costs.check_space(space)
        pairs = [(costs, results[0] if results else None)]
    budget = budget.of(max(t.column('flops').values()) for t, _ in pairs)
    found, errors = [], []
    for priced, own in pairs:
        where = _where(priced, results)
        try:
            found.append((*_best(space, budget, priced, own), priced, where))
        except _NoneWithinError as error:
            errors.append(where + ': ' * bool(where) + str(error))
    if not found:
        raise ValueError('; '.join(errors))
    _, best, reason, priced, where = max(found, key=lambda of: of[0])
    if budget.cost == 'latency':
        _warn_of_other(priced, devices() if on is None else on)
    return Choice(best, *variant_of(priced), f'{reason}; {where}' if where else reason)


def _best(
    space: StitchingSpace,
    budget: Budget,
    priced: CostTable | StitchResults,
    results: StitchResults | None,
) -> tuple[tuple, int, str]:
    """Return a sort key (larger is better), id and reason of the best stitch."""
    if results is None:
        sign, scores = 1, prior_scores(space, priced.column('flops'))
    else:
        results.check_space(space)
        sign, scores = 1 if results.higher_is_better else -1, results.scores()
    column, unit = priced.column(budget.cost), UNITS[budget.cost]
    affordable = (i for i in scores if column[space[i].id] <= budget.limit)
    found = sorted(affordable, key=lambda i: (-sign * scores[i], column[i], i))
    if not found:
        cheapest = min(scores, key=lambda i: (column[i], i))
        which = 'stitch' if results is None else 'evaluated stitch'
        raise _NoneWithinError(
            f'budget {budget}: no {which} is that cheap; the cheapest is stitch '
            f'{cheapest} ({space.describe(space[cheapest])}) with '
            f'{unit.budget(column[cheapest])}'
        )
    best = found[0]
    evidence = f'the prior, {PRIOR_LOSES}'
    if results is not None:
        second = [f'stitch {i} with {scores[i]:.4g}' for i in found[1:2]] or ['none']
        evidence = (
            f'results that measured {len(results.complete)} of {len(space)} stitches: '
            f'{results.metric} {scores[best]:.4g}; runner-up {second[0]}'
        )
    what = f'stitch {best} ({space.describe(space[best])}, {unit.budget(column[best])})'
    reason = f'budget {budget} {budget.meaning}: {what}, by {evidence}'
    return (sign * scores[best], -priced.column('flops')[best]), best, reason


def _warn_of_other(priced: CostTable | StitchResults, on: Sequence[str]) -> None:
    """Warn if none of some devices measured the milliseconds."""
    measured = priced.setup.device if priced.setup else 'an unknown device'
    if not measured.startswith(tuple(on)):
        logging.getLogger('snnet_mm').warning(
            f'Warning: milliseconds of this budget were measured on {measured}, not on '
            f'{" or ".join(on)}; tools/analysis_tools/stitch_table.py CONFIG --latency '
            'measures them here (option: --costs)'
        )


def _where(one: CostTable | StitchResults, of: Sequence[StitchResults]) -> str:
    """Describe the size or precision that distinguishes ``one`` among ``of``."""
    (size, precision), parts = variant_of(one), []
    sizes, precisions = ({variant_of(r)[n] for r in of} for n in (0, 1))
    if len(sizes) > 1:
        parts.append('images of {}x{}'.format(*size))
    if len(precisions) > 1:
        parts.append(f'in {precision or "unknown precision"}')
    return ' '.join(parts)


def listed(given: object) -> list:
    """Return an object, a list or tuple of objects, or None as a list."""
    if given is None:
        return []
    return [*given] if isinstance(given, list | tuple) else [given]


def prior_scores(space: StitchingSpace, flops: Mapping[int, float]) -> dict[int, float]:
    """Return a prior score for every stitch; higher is likely to be better.

    The anchors score 0, 1, 2 and so on. Other stitches interpolate linearly in FLOPs
    between their fastest and slowest anchor. Every change of anchor is penalised in
    proportion to its depth, as SN-Netv2 finds in appendix E, and more into the slower
    anchor. The two weights were chosen on the authors' ADE20K results;
    docs/how_to/choosing.md evaluates the ranking.
    """
    wanted = 'results of an evaluation: no guess is made for a ' + type(space).__name__
    check(space.has_prior, '--results', None, wanted)
    anchor_flops = [flops[i] for i in space.anchor_ids]
    scores = {}
    for stitch in space:
        anchors = [segment.anchor for segment in stitch.segments]
        low, high = min(anchors), max(anchors)
        least, most = anchor_flops[low], anchor_flops[high]
        place = (flops[stitch.id] - least) / ((most - least) or 1)
        penalty = sum(
            (INTO_SLOWER if after.anchor > before.anchor else INTO_FASTER)
            * (before.end / space.depths[before.anchor])
            for before, after in pairwise(stitch.segments)
        )
        scores[stitch.id] = low + (high - low) * (place - penalty)
    return scores
