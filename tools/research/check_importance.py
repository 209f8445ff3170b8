"""Evaluate stitch choice by importance: ``check_importance.py RESULTS SCORES``.

ESTA deploys the stitch of every cost interval with the highest importance score of a
training. This tool compares the deployed stitches with a test of all stitches.
"""

import argparse
from statistics import mean

from snnet_mm.stitching import StitchTable, split_cost_range
from snnet_mm.utils import ToolParser, check, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    parser.add_argument('results', help='stitches.json of a test of all stitches')
    parser.add_argument('scores', help='stitch_scores.json of the training')
    what = 'cost intervals of the training (default: 15)'
    parser.add_argument('--intervals', default=15, type=int, help=what)
    return parser.parse_args()


def choices(results: StitchTable, scores: StitchTable, number: int) -> list[dict]:
    """Return how much the deployed stitch of every interval loses to the best one.

    ``lost`` is its loss, ``by_chance`` the mean loss of a random stitch. ``on_front``
    is whether it is on the front, ``share`` the fraction of the interval that is.
    """
    from snnet_mm.esta import DEPLOYMENT, IMPORTANCE

    importance = scores.ranked_by(IMPORTANCE).scores()
    places = scores.ranked_by(DEPLOYMENT).scores()
    sign = 1 if results.higher_is_better else -1
    metric, front = results.scores(), {row.id for row in results.front()}
    found = []
    intervals = split_cost_range(results.column('flops'), number)
    for place, interval in enumerate(intervals, start=1):
        interval = [i for i in interval if i in metric]
        scored = [i for i in interval if i in importance]
        if not scored:
            continue
        deployed = max(scored, key=lambda i: (importance[i], -i))
        allowed = 'the number with which they were scored (num_groups of the sampler)'
        check(places[deployed] == place, '--intervals', number, allowed)
        best = max(sign * metric[i] for i in interval)
        lost = {i: best - sign * metric[i] for i in interval}
        choice = dict(lost=lost[deployed], by_chance=mean(lost.values()))
        share = len(front & set(interval)) / len(interval)
        found.append(choice | dict(on_front=deployed in front, share=share))
    return found


def main() -> None:
    args = parse_args()
    check(args.intervals > 0, '--intervals', args.intervals, '1 or more')
    results, scores = map(StitchTable.read, (args.results, args.scores))
    check(results.space == scores.space, 'scores', scores.space, [results.space])
    lacking = sorted(set(scores.scores()) - set(results.scores()))
    check(not lacking, 'results', lacking, 'results of all stitches; these are lacking')
    found = choices(results, scores, args.intervals)
    print(
        f'{sum(c["on_front"] for c in found)} of {len(found)} deployed stitches are on '
        f'the measured front of {len(results.front())}; drawn at random '
        f'{sum(c["share"] for c in found):.1f} would be'
    )
    print(
        f'they lose {mean(c["lost"] for c in found):.2f} {results.metric} to the best '
        f'of their intervals on average and {max(c["lost"] for c in found):.2f} at '
        f'most; drawn at random {mean(c["by_chance"] for c in found):.2f} on average'
    )


if __name__ == '__main__':
    run_command(main)
