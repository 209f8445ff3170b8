"""Lists of stitches, as configs and command lines name them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from snnet_mm.utils import is_whole

from .budget import ALLOWED, BUDGET_UNITS, pick
from .cost_table import CostTable
from .results import StitchResults
from .routes import ANCHOR_KIND
from .space import StitchingSpace

WORDS = ('all', 'anchors', 'pareto')


def select_stitches(
    space: StitchingSpace,
    stitches: str | int | Sequence[int] | Sequence[str],
    costs: CostTable | None = None,
    results: StitchResults | None = None,
) -> tuple[int, ...]:
    """Stitch ids of a selection, in the order given.

    Args:
        space: The stitching space.
        stitches: ``'all'``, ``'anchors'``, ``'pareto'`` for the front of the results,
            one id, several ids, or several budgets for the best stitch within each;
            lists also as text such as ``'0,5,12'`` or ``'60G,120G'``.
        costs: Costs of the stitches, for budgets; by default those of the results.
        results: What an evaluation found; budgets without results go by
            :func:`prior_scores`.

    Raises:
        ValueError: For another word, no ids at all, a repeated id, one that is not in
            the space, a budget that buys no stitch, or if results are needed and
            missing or of another space.
    """
    if isinstance(stitches, str) and stitches in WORDS:
        return _named(space, stitches, results)
    if isinstance(stitches, str):
        stitches = [part.strip() for part in stitches.split(',')]
    items = tuple(stitches) if isinstance(stitches, Collection) else (stitches,)
    if any(_is_budget(item) for item in items):
        picked = [pick(space, item, costs, results) for item in items]
        # Two budgets may buy the same stitch.
        return tuple(dict.fromkeys(picked))
    ids = tuple(_parse_id(item, stitches) for item in items)
    if not ids or len(set(ids)) != len(ids):
        raise ValueError(
            f'stitches={ids} must be one or more ids, each once (config key: stitches; '
            'option: --stitch-id)'
        )
    try:
        return tuple(space[i].id for i in ids)
    except ValueError as error:
        raise ValueError(
            f'{error} (config key: stitches; option: --stitch-id)'
        ) from None


def _named(
    space: StitchingSpace, word: str, results: StitchResults | None
) -> tuple[int, ...]:
    if word == 'all':
        return space.ids
    if word == 'anchors':
        return space.anchor_ids
    if results is None:
        raise ValueError(
            "stitches='pareto' needs the results of an evaluation: a stitches.json, as "
            'tools/test.py --stitch-id all writes it (config key: results; option: '
            '--results)'
        )
    results.check_space(space)
    return tuple(space[i].id for i in results.front())


def _is_budget(item: object) -> bool:
    return isinstance(item, str) and item.endswith(tuple(BUDGET_UNITS))


def _parse_id(item: int | str, stitches: object) -> int:
    try:
        if isinstance(item, str) or is_whole(item):
            return int(item)
        raise ValueError
    except ValueError:
        text = stitches
        if isinstance(stitches, list | tuple):
            text = ','.join(map(str, stitches))
        raise ValueError(
            f"stitches={text!r}; allowed are 'all', 'anchors', 'pareto', ids such as "
            f"'0,5,12' and budgets such as '60G,120G': {ALLOWED}"
        ) from None


def middle_stitches(space: StitchingSpace) -> list[int]:
    """The anchors and, of every other kind, the stitch in the middle of its ids."""
    ids: dict[str, list[int]] = {}
    for stitch in space:
        ids.setdefault(stitch.kind, []).append(stitch.id)
    ids.pop(ANCHOR_KIND)
    return [*space.anchor_ids, *(kind[len(kind) // 2] for kind in ids.values())]
