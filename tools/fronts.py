"""Figures of runs for ``tools/reproduce.py``: means, the best rates, and fronts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, stdev

from snnet_mm.stitching import StitchTable

# Parts of names in which runs of one figure differ, and points of one front.
SEED, RATE = re.compile(r'-seed\d'), re.compile(r'-lr[\d.]+')
GAP_OR_RATE = re.compile(r'-\dto\d|-lr[\d.]+')


def print_figures(
    tables: Mapping[str, StitchTable],
    papers: Mapping[str, str],
    stitched: Collection[str],
    groups: Mapping[str, Sequence[str]],
) -> dict[str, StitchTable]:
    """Print figures of runs beside the papers', and return the fronts to draw.

    Runs that differ in the seed alone have means and standard errors. Of those that
    differ in the learning rate, the best is named. Those of all data sets of a group
    have a mean. Gaps of a bridge are points of one front.

    Args:
        tables: Results by the name of the run.
        papers: Figures of the papers by the name of the run.
        stitched: Names of runs with stitches.
        groups: Data sets that a paper averages over, by name.
    """
    found, means, drawn = {}, {}, []
    for name, seeds in grouped(tables, SEED).items():
        found[name] = [tables[seed] for seed in seeds]
        means[name] = mean_of(found[name])
        drawn += [name] * (seeds[0] in stitched or len(seeds) > 1)
        paper = papers[seeds[0]] or 'none'
        print(f'{name}\n    paper: {paper}\n    ours:  {ends_of(found[name])}')
    for rates in grouped(found, RATE).values():
        if len(rates) > 1:
            best = max(rates, key=lambda name: best_score(means[name]))
            print(f'Best of {len(rates)} rates: {best}\n    {ends_of(found[best])}')
    fronts = {name: means[name] for name in drawn}
    for group, data in groups.items():
        part = re.compile(f'(?<=_)({"|".join(data)})(?=-224x224)')
        for name, names in grouped(filter(part.search, found), part, group).items():
            if len(names) == len(data):
                mean = mean_of([means[n] for n in names])
                print(f'{name}\n    ours:  {ends_of([mean])}')
                fronts |= {name: mean} if names[0] in fronts else {}
                fronts = {n: f for n, f in fronts.items() if n not in names}
    return {
        name: joined([fronts[n] for n in names])
        for name, names in grouped(fronts, GAP_OR_RATE).items()
    }


def grouped(
    names: Iterable[str], part: re.Pattern, instead: str = ''
) -> dict[str, list[str]]:
    """Group names that differ in a part of them, by name with another part instead."""
    found: dict[str, list[str]] = {}
    for name in names:
        found.setdefault(part.sub(instead, name), []).append(name)
    return found


def ends_of(seeds: Sequence[StitchTable]) -> str:
    """Return scores and costs of the cheapest and the most expensive stitch."""
    costs, scores = seeds[0].column('flops'), [table.scores() for table in seeds]
    ids = sorted(scores[0], key=costs.get)
    ends = dict.fromkeys((ids[0], ids[-1]))
    score = ' - '.join(mean_and_error([found[i] for found in scores]) for i in ends)
    cost = ' - '.join(f'{costs[i] / 1e9:.3g}' for i in ends)
    return f'{score} {seeds[0].metric} at {cost} GFLOPs'


def mean_and_error(values: Sequence[float]) -> str:
    """Return a mean, and its standard error if there are several values."""
    error = stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0
    return f'{fmean(values):.4g}' + f' ± {error:.2g}' * (len(values) > 1)


def mean_of(tables: Sequence[StitchTable]) -> StitchTable:
    """Return the first of several tables of the same stitches, with mean scores."""
    first, scores = tables[0], [table.scores() for table in tables]
    means = {i: {first.metric: fmean(s[i] for s in scores)} for i in scores[0]}
    rows = [replace(r, metrics=means[r.id]) for r in first.rows if r.id in means]
    return replace(first, rows=rows)


def best_score(table: StitchTable) -> float:
    """Return the best score, as a number of which more is better."""
    sign = 1 if table.higher_is_better else -1
    return max(sign * score for score in table.scores().values())


def joined(tables: Sequence[StitchTable]) -> StitchTable:
    """Return the rows of several tables, such as gaps of a bridge, as one table."""
    if len(tables) == 1:
        return tables[0]
    rows = enumerate(row for table in tables for row in table.rows)
    rows = [replace(row, id=i) for i, row in rows]
    return replace(tables[0], rows=rows, space=None)
