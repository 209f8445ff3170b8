from dataclasses import replace

import pytest
from small_results import METRICS, RESULTS, SPACE

from snnet_mm.runtime import BudgetController
from snnet_mm.stitching import SizedStitch, choose_pair, joint_columns, pareto_front


def at(size, factor, better, **changes):
    """The small results at another size: costs by a factor, RMSE lower by so much."""
    rows = [
        replace(
            r,
            flops=int(r.flops * factor),
            latency=r.latency * factor,
            metrics=dict(r.metrics, RMSE=r.metrics['RMSE'] - better),
        )
        for r in RESULTS.stitches
    ]
    return replace(RESULTS, stitches=rows, input_size=size, **changes)


# RMSE 0.9, 0.5, 0.8, 0.6 at 3, 30, 20, 10 GFLOPs and 9, 8, 4, 6 ms.
LARGE, SMALL = RESULTS, at((16, 24), 0.25, -0.15)


def test_pairs_on_one_front():
    costs, scores = joint_columns([LARGE, SMALL])
    assert len(costs) == len(scores) == 8
    assert costs[SizedStitch(5, (16, 24))] == 2.5e9
    assert scores[SizedStitch(5, (32, 48))] == METRICS[5]['RMSE']
    front = pareto_front(costs, scores, higher_is_better=False)
    small, large = (16, 24), (32, 48)
    assert front == [(0, small), (5, small), (1, small), (5, large), (1, large)]
    ms, _ = joint_columns([LARGE, SMALL], 'latency')
    assert ms[2, small] == 1


@pytest.mark.parametrize(
    ('budget', 'pair'),
    [
        ('1G', (0, (16, 24))),
        ('9G', (1, (16, 24))),  # no stitch but one of the large size is that cheap
        ('12G', (5, (32, 48))),
        ('30G', (1, (32, 48))),
        ('1.6ms', (5, (16, 24))),
        ('8ms', (1, (32, 48))),
    ],
)
def test_the_best_pair_within_a_budget(budget, pair):
    for results in ([LARGE, SMALL], [SMALL, LARGE]):
        found, choice = choose_pair(SPACE, budget, results)
        assert found == pair
        assert choice.id == pair[0]
        assert choice.reason.endswith('images of {}x{}'.format(*pair[1]))


def test_predictions_of_one_size_give_way_to_what_is_measured_at_another():
    hoped = at((16, 24), 0.25, 0.4)
    hoped = replace(hoped, stitches=[replace(r, deviation=0.1) for r in hoped.stitches])
    assert choose_pair(SPACE, '30G', [hoped, LARGE])[0] == (1, (32, 48))
    assert choose_pair(SPACE, '2G', [hoped, LARGE])[0] == (0, (16, 24))


def test_the_controller_moves_on_the_joint_front():
    costs, scores = joint_columns([LARGE, SMALL])
    controller = BudgetController(costs, scores, False, target_ms=10, load=1e-9)
    assert controller.stitch == (5, (32, 48))
    for _ in range(20):  # everything takes twice as long
        controller.update(2e-9 * costs[controller.stitch])
    assert controller.stitch == (5, (16, 24))
