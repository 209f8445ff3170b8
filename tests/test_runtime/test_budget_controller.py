import math
from itertools import pairwise
from random import Random
from statistics import mean

import pytest

from snnet_mm.runtime import BudgetController

# 21 stitches of 10 to 40 ms, each 7 % above the one before.
LATENCIES = {i: 10 * 4 ** (i / 20) for i in range(21)}


def drive(controller, calls, load=1.0, noise=0.0, outliers=0.0, seed=0):
    """Run what a controller chooses; return the stitches and their true times."""
    random, stitches = Random(seed), []
    for _ in range(calls):
        stitches.append(controller.stitch)
        time = load * LATENCIES[stitches[-1]] * math.exp(random.gauss(0, noise))
        controller.update(time * (6 if random.random() < outliers else 1))
    return stitches, [load * LATENCIES[i] for i in stitches]


@pytest.mark.parametrize(
    ('noise', 'outliers', 'switches'), [(0, 0, 0), (0.05, 0, 2), (0.1, 0.03, 14)]
)
def test_controller_follows_load_without_swinging(noise, outliers, switches):
    controller = BudgetController(LATENCIES, target_fps=40, load=1)
    for seed, load in enumerate((1, 2, 0.8, 2.4, 1.2, 1.2 * 1.5, 1)):
        stitches, times = drive(controller, 175, load, noise, outliers, seed)
        assert mean(times[25:]) == pytest.approx(25, rel=0.11), load
        # Times are known to 4 % at the highest noise.
        found = sum(a != b for a, b in pairwise(stitches[25:]))
        assert found <= switches, load


def test_controller_follows_step_within_five_calls():
    controller = BudgetController(LATENCIES, target_fps=40, load=1)
    drive(controller, 20)
    for load, before in ((2, 50), (1, 12.5)):
        _, times = drive(controller, 11, load)
        assert times == pytest.approx([before] * 5 + [25] * 6, rel=0.1)


def test_controller_learns_time_of_flops():
    """The first of six calls warms up; 23.5 ms leave 5 % free, 25.2 ms do not."""
    flops = {i: int(ms * 1e9) for i, ms in LATENCIES.items()}
    stitches, _ = drive(BudgetController(flops, target_fps=40), 20)
    assert stitches == [0] * 6 + [12] * 14


def test_controller_ignores_first_and_failed_calls(monkeypatch):
    """After five calls of 10 ms, a stitch of twice as many is in time."""
    controller, now = BudgetController({0: 10, 1: 20}, target_fps=40), [0.0]
    monkeypatch.setattr('time.perf_counter', lambda: now[0])

    def call(seconds, error=None):
        with controller.measure():
            now[0] += seconds
            if error is not None:
                raise error
        return controller.stitch

    assert call(9) == 0
    for _ in range(9):
        pytest.raises(KeyError, call, 0.1, KeyError())
    assert [call(0.01) for _ in range(5)] == [0, 0, 0, 0, 1]


@pytest.mark.parametrize(('sign', 'higher'), [(1, True), (-1, False)])
def test_controller_candidates_are_the_front(sign, higher):
    costs = {0: 10, 1: 40, 2: 20, 3: 30}
    for scores, front in (((1, 4, 3, 2), [0, 2, 1]), ((1, math.nan, 3, 4), [0, 2, 3])):
        scores = {i: sign * score for i, score in enumerate(scores)}
        controller = BudgetController(costs, scores, higher, target_fps=1000)
        assert controller.costs == {i: costs[i] for i in front}
