"""Check how the prior picks stitches: ``tools/research/check_prior.py FILE``.

Compares, over all stitches of an evaluation, the prior that budgets go by where nothing
was measured with the results.
"""

import argparse
from collections.abc import Mapping
from statistics import mean

from snnet_mm.stitching import (
    StitchResults,
    TwoWaySpace,
    group_by_cost,
    prior_scores,
    rank_correlation,
)
from snnet_mm.utils import ToolParser, check, run_command


def parse_args() -> argparse.Namespace:
    parser = ToolParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add('results', help='results of all stitches of a two-way space')
    what, depths = 'blocks of the anchors, fast to slow', dict(nargs='+', type=int)
    add('--depths', **depths, required=True, metavar='DEPTH', help=what)
    add('--metric', help='metric (default: the metric of the results)')
    what = 'GFLOPs between budgets (default: 10)'
    add('--step', default=10, type=float, help=what)
    args = parser.parse_args()
    check(args.step > 0, '--step', args.step, 'above 0')
    return args


def lost(
    results: StitchResults, guess: Mapping[int, float], step: float
) -> list[float]:
    """What the guess loses to the best stitch within budgets.

    Budgets are the dearest stitch of every cost group.
    """
    scores, column = results.scores(), results.column('flops')
    flops = {i: column[i] for i in scores}
    sign = 1 if results.higher_is_better else -1
    losses = []
    for group in group_by_cost(flops, step):
        budget = max(flops[i] for i in group)
        affordable = [i for i in flops if flops[i] <= budget]
        guessed = max(affordable, key=lambda i: (guess[i], -flops[i]))
        best = max(sign * scores[i] for i in affordable)
        losses.append(best - sign * scores[guessed])
    return losses


def main() -> None:
    args = parse_args()
    space = TwoWaySpace(args.depths)
    results = StitchResults.read(args.results, space)
    results = results.ranked_by(args.metric)
    flops, scores = results.column('flops'), results.scores()
    missing = sorted(set(space.ids) - set(flops))
    check(not missing, 'results', missing, 'results of all stitches; these are lacking')
    guesses = {}
    for name, guess in dict(prior=prior_scores(space, flops), FLOPs=flops).items():
        ranks = rank_correlation([guess[i] for i in scores], list(scores.values()))
        guesses[f'{name} alone: rank correlation {ranks:.2f}'] = guess
    for what, guess in guesses.items():
        losses = lost(results, guess, args.step * 1e9)
        print(
            f'{what}; loses {mean(losses):.2f} {results.metric} on average and '
            f'{max(losses):.2f} at most over {len(losses)} budgets'
        )


if __name__ == '__main__':
    run_command(main)
