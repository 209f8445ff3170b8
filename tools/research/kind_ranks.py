"""Rank the kinds of stitches at similar cost: ``kind_ranks.py RESULTS`` (SN-Netv2, E).

In each cost group of ROS, the rank of a stitch is the share of the group's other
stitches that it beats; a tie counts half. Kinds have the mean rank of their stitches.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from snnet_mm.stitching import StitchTable, default_step, group_by_cost
from snnet_mm.utils import ToolParser, check, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    parser.add_argument('results', help='stitches.json of a test of all stitches')
    what = 'picture (default: kind_ranks.png beside the results)'
    parser.add_argument('--out', type=Path, help=what)
    return parser.parse_args()


def ranks(scores: Mapping[int, float], higher: bool) -> dict[int, float]:
    """Return the share of the other stitches that each one beats."""
    sign, others = 1 if higher else -1, len(scores) - 1
    beaten = {
        i: sum((sign * (a - b) > 0) + 0.5 * (a == b) for b in scores.values()) - 0.5
        for i, a in scores.items()
    }
    return {i: number / others for i, number in beaten.items()}


def kind_ranks(results: StitchTable) -> dict[float, dict[str, float]]:
    """Return the mean rank by kind of each group, by its mean FLOPs."""
    flops, scores = results.column('flops'), results.scores()
    kinds, found = {row.id: row.kind for row in results.rows}, {}
    for group in group_by_cost(flops, default_step(flops)):
        tested = {i: scores[i] for i in group if i in scores}
        if len(tested) < 2:
            continue
        of_kinds: dict[str, list[float]] = {}
        for i, rank in ranks(tested, results.higher_is_better).items():
            of_kinds.setdefault(kinds[i], []).append(rank)
        means = {kind: fmean(values) for kind, values in of_kinds.items()}
        found[fmean(flops[i] for i in tested)] = means
    return found


def main() -> None:
    args = parse_args()
    results = StitchTable.read(args.results)
    found = kind_ranks(results)
    check(found, 'results', args.results, 'two tested stitches of similar cost')
    kinds = sorted({kind for means in found.values() for kind in means})
    table = Table('GFLOPs', *kinds, title=f'Mean rank by {results.metric}')
    for cost, means in found.items():
        shares = [f'{means[k]:.0%}' if k in means else '' for k in kinds]
        table.add_row(f'{cost / 1e9:.3g}', *shares)
    Console().print(table)
    out = args.out or Path(args.results).with_name('kind_ranks.png')
    plot(found, kinds, out)
    print(f'Wrote {out}')


def plot(found: Mapping[float, Mapping[str, float]], kinds: list[str], out: Path):
    """Draw a line of each kind over the cost."""
    from snnet_mm.evaluation.pictures.figures import new_figure, save_figure

    figure = new_figure(6, 3.5)
    axes = figure.add_subplot()
    for kind in kinds:
        points = [(c / 1e9, 100 * m[kind]) for c, m in found.items() if kind in m]
        axes.plot(*zip(*points, strict=True), marker='o', label=kind)
    axes.set(xlabel='GFLOPs', ylabel='beaten stitches of the group (%)')
    axes.legend()
    save_figure(figure, out)


if __name__ == '__main__':
    run_command(main)
