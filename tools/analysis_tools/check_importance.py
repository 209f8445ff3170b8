"""How well importance picks stitches: ``check_importance.py RESULTS SCORES``.

Compares the stitches that ESTA deploys, the most important one of every cost interval
by the scores of a training, with an evaluation of all of them.
"""

import argparse
from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple

from rich.table import Table

from snnet_mm.esta import DEPLOYMENT, IMPORTANCE
from snnet_mm.evaluation import wide_console
from snnet_mm.stitching import StitchResult, StitchResults, split_cost_range


class Choice(NamedTuple):
    """What is deployed of one cost interval.

    ``lost`` is what its metric lacks to the best of the interval, ``lost_by_chance``
    what that of a stitch drawn at random lacks, and ``share`` how much of the interval
    is on the front.
    """

    deployed: StitchResult
    best: StitchResult
    size: int
    on_front: bool
    lost: float
    lost_by_chance: float
    share: float


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('results', help='stitches.json of a test of all stitches')
    parser.add_argument('scores', help='stitch_scores.json of the training')
    parser.add_argument(
        '--intervals',
        default=15,
        type=int,
        help='cost intervals of the training (default: 15)',
    )
    args = parser.parse_args()
    if args.intervals < 1:
        parser.error(f'--intervals {args.intervals}: allowed is 1 or more')
    return args


def choices(
    results: StitchResults, scores: StitchResults, num_intervals: int
) -> list[Choice]:
    """What is deployed of every interval.

    Raises:
        ValueError: If the files are of different spaces, the second holds no scores, a
            stitch was scored and not evaluated, or the scores were written with other
            intervals.
    """
    if results.space != scores.space:
        raise ValueError('results and scores are of different stitching spaces')
    if IMPORTANCE not in scores.stitches[0].metrics:
        raise ValueError(
            f'the file of scores holds {list(scores.stitches[0].metrics)}; wanted is '
            'the stitch_scores.json that a training with an ImportanceSampler writes'
        )
    importance = scores.ranked_by(IMPORTANCE).scores()
    places = scores.ranked_by(DEPLOYMENT).scores()
    lacking = sorted(set(importance) - set(results.scores()))
    if lacking:
        raise ValueError(f'the results lack stitches {lacking}; all are wanted')
    sign = 1 if results.higher_is_better else -1
    by_id = {r.id: r for r in results.stitches}
    metric, front = results.scores(), set(results.front())
    found = []
    intervals = split_cost_range(results.column('flops'), num_intervals)
    for place, interval in enumerate(intervals, start=1):
        scored = [i for i in interval if i in importance]
        if scored:
            deployed = max(scored, key=lambda i: (importance[i], -i))
            if places[deployed] != place:
                raise ValueError(
                    f'--intervals {num_intervals}: the scores were written with '
                    'another number of intervals, num_groups of the ImportanceSampler'
                )
            best = max(interval, key=lambda i: (sign * metric[i], -i))
            lost = {i: sign * (metric[best] - metric[i]) for i in interval}
            found.append(
                Choice(
                    by_id[deployed],
                    by_id[best],
                    len(interval),
                    deployed in front,
                    lost[deployed],
                    mean(lost.values()),
                    len(front & set(interval)) / len(interval),
                )
            )
    return found


def choices_table(found: Sequence[Choice], results: StitchResults) -> Table:
    table = Table(
        title='The most important stitch of every cost interval, and the best'
    )
    for name in ('GFLOPs', 'of', 'deployed', results.metric, 'best', results.metric):
        left = name in ('deployed', 'best')
        table.add_column(name, justify='left' if left else 'right')
    table.add_column('lost', justify='right')
    table.add_column('front', justify='center')
    for choice in found:
        cells = [
            cell
            for r in (choice.deployed, choice.best)
            for cell in (f'{r.id}: {r.route}', f'{results.score(r):.2f}')
        ]
        table.add_row(
            f'{choice.deployed.flops / 1e9:.3g}',
            str(choice.size),
            *cells,
            f'{choice.lost:.2f}',
            '*' if choice.on_front else '',
        )
    return table


def main() -> None:
    args = parse_args()
    results, scores = map(StitchResults.read, (args.results, args.scores))
    found = choices(results, scores, args.intervals)
    console = wide_console()
    console.print(choices_table(found, results))
    console.print(
        f'{sum(c.on_front for c in found)} of {len(found)} deployed stitches are on '
        f'the measured front of {len(results.front())}; drawn at random '
        f'{sum(c.share for c in found):.1f} would be'
    )
    console.print(
        f'they lose {mean(c.lost for c in found):.2f} {results.metric} to the best of '
        f'their intervals on average and {max(c.lost for c in found):.2f} at most; '
        f'drawn at random {mean(c.lost_by_chance for c in found):.2f} on average'
    )


if __name__ == '__main__':
    main()
