"""Choosing stitches: by budget, as lists of configs name them, after a screening."""

from collections.abc import Collection, Sequence

from snnet_mm.utils import check, is_whole

from .cost_table import CostTable
from .costs import BUDGETS, UNITS, Budget, is_budget, parse_budget, split_cost_range
from .metrics import drop_nan
from .prior import prior_scores
from .results import StitchResults
from .routes import ANCHOR_KIND
from .space import StitchingSpace

NUM_BUDGET_GROUPS = 10
SELECTIONS = (
    f"'all', 'anchors', 'pareto', ids such as '0,5,12', each once, and budgets such as "
    f"'60G,120G': {BUDGETS}"
)


def pick(
    space: StitchingSpace,
    budget: str | Budget,
    costs: CostTable | None = None,
    results: StitchResults | None = None,
    lower_is_better: Collection[str] | None = None,
) -> int:
    """The best stitch within a budget.

    Without results it is the one that :func:`prior_scores` ranks first, which is a
    guess. Of equally good stitches it is the cheapest.

    Args:
        space: The stitching space.
        budget: Such as ``'120G'``, ``'60M'`` or ``'25ms'``.
        costs: Costs of the stitches; by default those that the results hold.
        results: Results, of whose stitches the best is picked.
        lower_is_better: See :func:`metric_directions`.
    """
    if not isinstance(budget, Budget):
        budget = parse_budget(budget)
    given = costs is not None or results is not None
    check(given, '--results', None, 'results or a cost table, which budgets go by')
    if results is None:
        scores, sign = prior_scores(space, costs.column('flops')), 1
    else:
        results.check_space(space)
        results = results.ranked_by(lower_is_better=lower_is_better)
        sign = 1 if results.higher_is_better else -1
        scores = {space[i].id: score for i, score in results.scores().items()}
    column = (costs if costs is not None else results).column(budget.cost)
    affordable = [i for i in scores if column[i] <= budget.limit]
    if not affordable:
        cheapest = min(scores, key=lambda i: (column[i], i))
        which = 'stitch' if results is None else 'evaluated stitch'
        raise ValueError(
            f'budget {budget}: no {which} is that cheap; the cheapest is stitch '
            f'{cheapest} ({space.describe(space[cheapest])}) with '
            f'{UNITS[budget.cost].budget(column[cheapest])}'
        )
    return min(affordable, key=lambda i: (-sign * scores[i], column[i], i))


def select_stitches(
    space: StitchingSpace,
    stitches: str | int | Sequence[int] | Sequence[str],
    costs: CostTable | None = None,
    results: StitchResults | None = None,
    lower_is_better: Collection[str] | None = None,
) -> tuple[int, ...]:
    """Stitch ids of a selection, in the order given; the rest is as in :func:`pick`.

    A selection is ``'all'``, ``'anchors'``, ``'pareto'`` for the front of the results,
    one id, several ids, or several budgets for the best stitch within each; lists also
    as text such as ``'0,5,12'`` or ``'60G,120G'``.
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
        best = [pick(space, item, costs, results, lower_is_better) for item in items]
        return tuple(dict.fromkeys(best))  # two budgets may buy the same stitch
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
