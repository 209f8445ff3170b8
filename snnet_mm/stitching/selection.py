"""Choosing stitches: by budget, as lists of configs name them, after a screening."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import NamedTuple

from snnet_mm.runtime.budgets import (
    BUDGETS,
    UNITS,
    Budget,
    drop_nan,
    is_budget,
    parse_budget,
)
from snnet_mm.utils import check, is_whole

from .cost_table import CostTable, split_cost_range
from .prior import prior_scores
from .results import (
    SizedStitch,
    StitchResults,
    check_comparable,
    joint_columns,
)
from .routes import ANCHOR_KIND
from .space import StitchingSpace

NUM_BUDGET_GROUPS = 10
SELECTIONS = (
    f"'all', 'anchors', 'pareto', ids such as '0,5,12', each once, and budgets such as "
    f"'60G,120G': {BUDGETS}"
)
PRIOR_LOSES = (
    'a guess, which on published models lost 0.5 points of mIoU or top-1 on average '
    'and 2.4 at most; --stitch-id all measures'
)


class Choice(NamedTuple):
    """A stitch, and in a line why it was chosen."""

    id: int
    reason: str


def pick(
    space: StitchingSpace,
    budget: str | Budget,
    costs: CostTable | Mapping[str, CostTable] | None = None,
    results: StitchResults | None = None,
    lower_is_better: Collection[str] | None = None,
) -> int:
    """The best stitch within a budget.

    Without results it is the one that :func:`prior_scores` ranks first, which is a
    guess. Of equally good stitches it is the cheapest.

    Args:
        space: The stitching space.
        budget: Such as ``'120G'``, ``'60M'`` or ``'25ms'``.
        costs: Costs of the stitches, also by precision, see :func:`choose_precision`;
            by default those that the results hold.
        results: Results, of whose stitches the best is picked.
        lower_is_better: See :func:`metric_directions`.
    """
    return choose(space, budget, costs, results, lower_is_better).id


def choose(
    space: StitchingSpace,
    budget: str | Budget,
    costs: CostTable | Mapping[str, CostTable] | None = None,
    results: StitchResults | None = None,
    lower_is_better: Collection[str] | None = None,
) -> Choice:
    """The stitch of :func:`pick`, the evidence, and what it may lose to the best."""
    return choose_precision(space, budget, costs, results, lower_is_better)[1]


def choose_precision(
    space: StitchingSpace,
    budget: str | Budget,
    costs: CostTable | Mapping[Hashable, CostTable] | None = None,
    results: StitchResults | Mapping[Hashable, StitchResults] | None = None,
    lower_is_better: Collection[str] | None = None,
) -> tuple[Hashable, Choice]:
    """Choose the precision, and the stitch in it, that are best within a budget.

    Costs, or the results that hold them, are by precision; else it is None. Of equally
    good ones it is the precision that is named first: name float32 first where the
    results are of one precision, and what another loses is not known. Arguments are
    those of :func:`pick`.
    """
    named = [x for x in (costs, results) if isinstance(x, Mapping)]
    if not named:
        return None, _choose(space, budget, costs, results, lower_is_better)[1]
    names, found, refused = list(named[0]), [], []
    check(names, '--costs', None, 'costs or results by precision')
    if isinstance(results, Mapping):
        results = {n: results[n].ranked_by(None, lower_is_better) for n in names}
        check_comparable(results.values())
    for name in names:
        known = (x[name] if isinstance(x, Mapping) else x for x in (costs, results))
        try:
            rated = _choose(space, budget, *known, lower_is_better)
        except ValueError as error:  # nothing is that cheap here
            refused.append(f'{name}: {error}')
        else:
            found.append((*rated, name))
    if not found:
        raise ValueError('; '.join(refused))
    _, choice, name = max(found, key=lambda of: of[0])
    sized = isinstance(name, tuple)  # see choose_pair
    where = 'images of {}x{}'.format(*name) if sized else f'in {name}'
    if isinstance(results, StitchResults):
        where += ', whose own metric the results do not tell'
    return name, Choice(choice.id, f'{choice.reason}; {where}')


def choose_pair(
    space: StitchingSpace,
    budget: str | Budget,
    results: Sequence[StitchResults],
    lower_is_better: Collection[str] | None = None,
) -> tuple[SizedStitch, Choice]:
    """The best stitch and input size within a budget, by results at one size each.

    Other arguments are those of :func:`pick`.
    """
    results = [r.ranked_by(lower_is_better=lower_is_better) for r in results]
    joint_columns(results)  # refuses what cannot be compared
    at = {r.input_size: r for r in results}
    size, choice = choose_precision(space, budget, results=at)
    return SizedStitch(choice.id, size), choice


def _choose(
    space: StitchingSpace,
    budget: str | Budget,
    costs: CostTable | None,
    results: StitchResults | None,
    lower_is_better: Collection[str] | None,
) -> tuple[tuple, Choice]:
    """Return the choice and, before it, its rating: larger is better."""
    if not isinstance(budget, Budget):
        budget = parse_budget(budget)
    given = costs is not None or results is not None
    check(given, '--results', None, 'results or a cost table, which budgets go by')
    if results is None:
        sign, scores = 1, prior_scores(space, costs.column('flops'))
    else:
        results.check_space(space)
        results = results.ranked_by(lower_is_better=lower_is_better)
        sign, scores = 1 if results.higher_is_better else -1, results.scores()
    priced = costs if costs is not None else results
    column = priced.column(budget.cost)
    affordable = (i for i in scores if column[space[i].id] <= budget.limit)
    found = sorted(affordable, key=lambda i: (-sign * scores[i], column[i], i))
    if not found:
        cheapest = min(scores, key=lambda i: (column[i], i))
        which = 'stitch' if results is None else 'evaluated stitch'
        raise ValueError(
            f'budget {budget}: no {which} is that cheap; the cheapest is stitch '
            f'{cheapest} ({space.describe(space[cheapest])}) with '
            f'{UNITS[budget.cost].budget(column[cheapest])}'
        )
    best = found[0]
    cost = UNITS[budget.cost].budget(column[best])
    what = f'stitch {best} ({space.describe(space[best])}, {cost})'
    evidence = f'by the prior, {PRIOR_LOSES}'
    if results is not None:
        evidence = _evidence(results, len(space), found)
    rating = sign * scores[best], -priced.column('flops')[best]
    return rating, Choice(best, f'budget {budget} {budget.meaning}: {what}, {evidence}')


def _evidence(results: StitchResults, num_stitches: int, found: Sequence[int]) -> str:
    """Return what speaks for the best of the found: its score and the runner-up's."""
    scores, measured = results.scores(), len(results.complete)
    second = [f'stitch {i} with {scores[i]:.4g}' for i in found[1:2]] or ['none']
    return (
        f'by results that measured {measured} of {num_stitches} stitches: '
        f'{results.metric} {scores[found[0]]:.4g}; runner-up {second[0]}'
    )


def select_stitches(
    space: StitchingSpace,
    stitches: str | int | Sequence[int] | Sequence[str],
    costs: CostTable | Mapping[str, CostTable] | None = None,
    results: StitchResults | None = None,
    lower_is_better: Collection[str] | None = None,
    say: Callable[[str], object] | None = None,
) -> tuple[int, ...]:
    """Stitch ids of a selection, in the order given; the rest is as in :func:`pick`.

    A selection is ``'all'``, ``'anchors'``, ``'pareto'`` for the front of the results,
    one id, several ids, or several budgets for the best stitch within each; lists also
    as text such as ``'0,5,12'`` or ``'60G,120G'``. ``say`` gets a line per budget.
    """
    if not isinstance(stitches, str):
        items = tuple(stitches) if isinstance(stitches, Collection) else (stitches,)
    elif stitches in ('all', 'anchors'):
        return space.ids if stitches == 'all' else space.anchor_ids
    elif stitches == 'pareto':
        wanted = 'a stitches.json of tools/test.py --stitch-id all, for pareto'
        check(results is not None, '--results', None, wanted)
        results.check_space(space)
        front = results.ranked_by(lower_is_better=lower_is_better).front()
        return tuple(space[i].id for i in front)
    else:
        items = tuple(part.strip() for part in stitches.split(','))
    if any(map(is_budget, items)):
        known = costs, results, lower_is_better
        found = [choose(space, item, *known) for item in items]
        for choice in found if say else ():
            say(choice.reason)
        # Two budgets may buy the same stitch.
        return tuple(dict.fromkeys(choice.id for choice in found))
    try:
        ids = tuple(int(i) for i in items if isinstance(i, str) or is_whole(i))
    except ValueError:
        ids = ()
    right = 0 < len(ids) == len(items) == len(set(ids))
    check(right, '--stitch-id', ','.join(map(str, items)), SELECTIONS)
    return tuple(space[i].id for i in ids)


def best_per_budget_group(results: StitchResults, keep: int) -> tuple[int, ...]:
    """Ids of the anchors, and of the ``keep`` best stitches of every budget group.

    Groups are ten equal parts of the range of FLOPs. A stitch whose score is NaN is
    none of the best.
    """
    check(keep >= 1, '--keep', keep, '1 stitch per budget group or more')
    found = {r.id: results.score(r) for r in results.stitches}
    scores = drop_nan(found, results.metric)
    sign = -1 if results.higher_is_better else 1
    chosen = {r.id for r in results.stitches if r.kind == ANCHOR_KIND}
    for group in split_cost_range(results.column('flops'), NUM_BUDGET_GROUPS):
        ranked = sorted(set(group) & set(scores), key=lambda i: (sign * scores[i], i))
        chosen |= set(ranked[:keep])
    return tuple(sorted(chosen))


def middle_stitches(space: StitchingSpace) -> list[int]:
    """The anchors and, of every other kind, the stitch in the middle of its ids."""
    ids: dict[str, list[int]] = {}
    for stitch in space:
        ids.setdefault(stitch.kind, []).append(stitch.id)
    ids.pop(ANCHOR_KIND)
    return [*space.anchor_ids, *(kind[len(kind) // 2] for kind in ids.values())]
