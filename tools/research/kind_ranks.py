"""Rank kinds of stitches at similar cost: ``kind_ranks.py stitches.json``.

In every cost group of resource-constrained sampling, the rank of a stitch is the share
of the group's other stitches that it beats; a tie counts half. Prints and draws the
mean rank of each kind (SN-Netv2, figure 15).
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean

from rich.console import Console
from rich.table import Table

from snnet_mm.stitching import StitchTable, default_step, group_by_cost
from snnet_mm.utils import ToolParser, check, run_command

Ranks = dict[float, dict[str, float]]  # by mean FLOPs of the group, and kind


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    parser.add_argument('results', help='stitches.json of a test of all stitches')
    what = 'picture (default: kind_ranks.png in the current folder)'
    parser.add_argument('--out', type=Path, default='kind_ranks.png', help=what)
    return parser.parse_args()


def kind_ranks(results: StitchTable) -> Ranks:
    """Return the mean ranks of the kinds of every group of two or more stitches."""
    flops, scores = results.column('flops'), results.scores()
    sign = 1 if results.higher_is_better else -1
    found: Ranks = {}
    for group in group_by_cost(flops, default_step(flops)):
        tested = [i for i in group if i in scores]
        if len(tested) < 2:
            continue
        ranks: dict[str, list[float]] = {}
        for i in tested:
            gaps = [sign * (scores[i] - scores[j]) for j in tested if j != i]
            beaten = [0.5 if gap == 0 else float(gap > 0) for gap in gaps]
            ranks.setdefault(results[i].kind, []).append(fmean(beaten))
        cost = fmean(flops[i] for i in tested)
        found[cost] = {kind: fmean(values) for kind, values in ranks.items()}
    return found


def plot(found: Ranks, kinds: list[str], out: Path) -> None:
    """Draw a line of each kind over the cost."""
    from snnet_mm.evaluation.pictures.figures import new_figure, save_figure

    figure = new_figure(6, 3.5)
    axes = figure.add_subplot()
    for kind in kinds:
        points = [(c / 1e9, 100 * m[kind]) for c, m in found.items() if kind in m]
        axes.plot(*zip(*points, strict=True), marker='o', label=kind)
    axes.set(xlabel='GFLOPs', ylabel='beaten stitches of similar cost (%)')
    axes.legend()
    save_figure(figure, out)


def main() -> None:
    args = parse_args()
    results = StitchTable.read(args.results)
    found = kind_ranks(results)
    check(found, 'results', args.results, 'two tested stitches of similar cost')
    kinds = sorted({kind for means in found.values() for kind in means})
    table = Table('GFLOPs', *kinds, title=f'Mean rank by {results.metric}')
    for cost, means in found.items():
        shares = (f'{means[k]:.0%}' if k in means else '' for k in kinds)
        table.add_row(f'{cost / 1e9:.3g}', *shares)
    Console().print(table)
    plot(found, kinds, args.out)
    print(f'Wrote {args.out}')


if __name__ == '__main__':
    run_command(main)
