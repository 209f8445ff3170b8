import math
import random
from itertools import count, pairwise
from statistics import mean

import pytest

from snnet_mm.runtime import BudgetController

# 21 stitches of 10 to 40 ms, each 7 % above the one before.
LATENCIES = {i: 10 * 4 ** (i / 20) for i in range(21)}


class Machine:
    """Takes its time for what a controller chooses."""

    def __init__(
        self, costs=LATENCIES, times_ms=LATENCIES, noise=0, seed=0, **settings
    ):
        self.times, self.noise, self.outliers = times_ms, noise, 0.0
        self.load, self.random = 1.0, random.Random(seed)
        self.controller = BudgetController(costs, **settings)

    def drive(self, calls):
        """Stitches and true mean times of a number of calls."""
        stitches = []
        for _ in range(calls):
            stitches.append(self.controller.stitch)
            time = self.load * self.times[stitches[-1]]
            time *= math.exp(self.random.gauss(0, self.noise))
            self.controller.update(
                time * (6 if self.random.random() < self.outliers else 1)
            )
        return stitches, [self.load * self.times[i] for i in stitches]


def switches(stitches):
    return sum(a != b for a, b in pairwise(stitches))


@pytest.mark.parametrize(
    ('noise', 'outliers', 'seed'),
    [(0, 0, 0), (0.05, 0, 1), *((0.1, 0.03, seed) for seed in range(3))],
)
def test_controller_follows_load_without_swinging(noise, outliers, seed):
    machine = Machine(noise=noise, seed=seed, target_fps=40, load=1)
    machine.outliers = outliers
    machine.drive(20)
    for load in (1, 2, 0.8, 2.4, 1.2, 1.2 * 1.5, 1):
        machine.load = load
        machine.drive(25)
        stitches, times = machine.drive(150)
        assert mean(times) == pytest.approx(25, rel=0.1), load
        # Noise may cost a correction; swinging would be dozens.
        assert switches(stitches) <= (3 if noise else 0), load


def test_controller_follows_step_within_ten_calls():
    machine = Machine(target_fps=40, load=1)
    machine.drive(100)
    for load, calls in ((2, 3), (1, 10)):
        machine.load = load
        _, times = machine.drive(11)
        assert times[0] == pytest.approx(25 * (2 if load == 2 else 0.5), rel=0.1)
        assert times[calls:] == pytest.approx([25] * (11 - calls), rel=0.1)


def test_controller_learns_time_of_flops():
    flops = {i: int(ms * 1e9) for i, ms in LATENCIES.items()}
    machine = Machine(flops, target_fps=40)
    controller = machine.controller
    assert controller.stitch == 0
    assert controller.load is None
    stitches, _ = machine.drive(20)
    # 1 call to warm up, 5 to learn from; 23.5 ms leave 5 % free, 25.2 ms do not.
    assert stitches == [0] * 6 + [12] * 14
    assert controller.load == pytest.approx(1e-9)


def test_controller_retries_slow_stitch_ever_more_rarely():
    machine = Machine({0: 10, 1: 12}, {0: 10, 1: 20}, target_fps=1000 / 15)
    stitches, _ = machine.drive(2000)
    tries = [n for n in range(1, 2000) if stitches[n] > stitches[n - 1]]
    waits = [b - a for a, b in pairwise(tries)]
    assert all(b > 1.5 * a for a, b in pairwise(waits))
    assert len(tries) <= 9
    # A change of the load is a new situation.
    machine.load = 0.7
    assert machine.drive(30)[0][-1] == 1


def test_controller_ignores_first_and_failed_calls(monkeypatch):
    clock = count()
    monkeypatch.setattr('time.perf_counter', lambda: next(clock))  # a second a call
    controller = BudgetController(LATENCIES, target_fps=40)
    controller.update(1e9)
    with pytest.raises(KeyError), controller.measure():
        raise KeyError
    assert controller.load is None
    with controller.measure():
        pass
    assert controller.load == 1000 / LATENCIES[0]


def test_controller_warns_once_of_impossible_target(caplog):
    machine = Machine(target_fps=200, load=1)
    assert set(machine.drive(50)[0]) == {0}
    (message,) = caplog.messages
    assert 'stitch 0, the cheapest one, takes 10 ms; the target of 5 ms' in message
    machine.load = 0.3
    assert machine.drive(50)[0][-1] > 0
    machine.load = 1
    assert machine.drive(50)[0][-1] == 0
    assert len(caplog.messages) == 2
    stitches, _ = Machine(noise=0.1, target_fps=2).drive(50)
    assert set(stitches[6:]) == {20}
    assert len(caplog.messages) == 2


@pytest.mark.parametrize(('sign', 'higher'), [(1, True), (-1, False)])
def test_controller_candidates_are_the_front(sign, higher):
    costs = {0: 10, 1: 40, 2: 20, 3: 30}
    for scores, front in (((1, 4, 3, 2), [0, 2, 1]), ((1, math.nan, 3, 4), [0, 2, 3])):
        scores = {i: sign * score for i, score in enumerate(scores)}
        controller = BudgetController(costs, scores, higher, target_fps=1000)
        assert controller.costs == {i: costs[i] for i in front}
