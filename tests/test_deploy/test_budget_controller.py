import logging
import math
import random
from functools import partial
from statistics import mean

import pytest

from snnet_mm.deploy import BudgetController, fit_times
from snnet_mm.stitching import StitchResult, StitchResults

# 21 stitches of 10 to 40 ms, each 7 % above the one before.
LATENCIES = {i: 10 * 4 ** (i / 20) for i in range(21)}


class Machine:
    """A clock that a call of a stitch moves on by its time under a load."""

    def __init__(self, times_ms, noise=0.0, outliers=0.0, seed=0):
        self.times, self.noise, self.outliers = times_ms, noise, outliers
        self.load, self.now, self.random = 1.0, 0.0, random.Random(seed)

    def clock(self):
        return self.now

    def run(self, stitch_id):
        time = self.load * self.times[stitch_id]
        time *= math.exp(self.random.gauss(0, self.noise))
        if self.random.random() < self.outliers:
            time *= 6
        self.now += time / 1000
        return time

    def drive(self, controller, calls):
        """Stitches and true mean times of a number of calls."""
        stitches = []
        for _ in range(calls):
            stitches.append(controller.stitch)
            with controller.measure():
                self.run(controller.stitch)
        return stitches, [self.load * self.times[i] for i in stitches]


def switches(stitches):
    return sum(a != b for a, b in zip(stitches, stitches[1:], strict=False))


@pytest.fixture
def warnings_of(monkeypatch):
    heard = []

    def listen(message, logger=None, level=logging.INFO):
        if level >= logging.WARNING:
            heard.append(message)

    monkeypatch.setattr('snnet_mm.deploy.budget_controller.print_log', listen)
    return heard


@pytest.mark.parametrize('seed', range(5))
@pytest.mark.parametrize(('noise', 'outliers'), [(0, 0), (0.05, 0), (0.1, 0.03)])
def test_steps_of_the_load_are_followed_without_swinging(noise, outliers, seed):
    machine = Machine(LATENCIES, noise, outliers, seed)
    controller = BudgetController(LATENCIES, target_ms=25, load=1, clock=machine.clock)
    machine.drive(controller, 20)
    for load in (1, 2, 0.8, 2.4, 1.2, 1.2 * 1.5, 1):
        machine.load = load
        machine.drive(controller, 25)
        stitches, times = machine.drive(controller, 150)
        assert mean(times) == pytest.approx(25, rel=0.1), load
        # Noise may cost a correction; swinging would be dozens.
        assert switches(stitches) <= (3 if noise else 0), load


def test_a_step_is_answered_within_ten_calls():
    machine = Machine(LATENCIES)
    controller = BudgetController(LATENCIES, target_ms=25, load=1, clock=machine.clock)
    machine.drive(controller, 100)
    machine.load = 2
    _, times = machine.drive(controller, 11)
    assert times[0] > 40
    assert times[3:] == pytest.approx([25] * 8, rel=0.1)
    machine.load = 1
    _, times = machine.drive(controller, 11)
    assert times[0] < 13
    assert times[10] == pytest.approx(25, rel=0.1)


def test_costs_of_another_unit_are_scaled_by_what_is_measured():
    machine = Machine(LATENCIES)
    flops = {i: int(ms * 1e9) for i, ms in LATENCIES.items()}
    controller = BudgetController(flops, target_fps=40, clock=machine.clock)
    assert controller.stitch == 0
    assert controller.load is controller.expected_ms(3) is None
    stitches, _ = machine.drive(controller, 20)
    # 1 call to warm up, 5 to learn from; 23.5 ms leave 5 % free, 25.2 ms do not.
    assert stitches == [0] * 6 + [12] * 14
    assert controller.load == pytest.approx(1e-9)
    assert controller.expected_ms(12) == pytest.approx(LATENCIES[12])


def test_a_large_part_that_all_stitches_share_is_overcome():
    flops = {i: 4.0 ** (i / 20) for i in range(21)}
    times = {i: 10 + 5 * f for i, f in flops.items()}  # 15 to 30 ms
    machine = Machine(times)
    controller = BudgetController(flops, target_ms=25, clock=machine.clock)
    machine.drive(controller, 60)
    stitches, settled = machine.drive(controller, 50)
    assert switches(stitches) == 0
    assert settled[0] == pytest.approx(25, rel=0.1)


def test_a_stitch_that_is_slower_than_promised_is_tried_ever_more_rarely():
    promised, true = {0: 10, 1: 12}, {0: 10, 1: 20}
    machine = Machine(true)
    controller = BudgetController(promised, target_ms=15, clock=machine.clock)
    stitches, _ = machine.drive(controller, 2000)
    tries = [n for n in range(1, 2000) if stitches[n] > stitches[n - 1]]
    waits = [b - a for a, b in zip(tries, tries[1:], strict=False)]
    assert all(b > 1.5 * a for a, b in zip(waits, waits[1:], strict=False))
    assert len(tries) <= 9
    # A change of the load is a new situation.
    machine.load = 0.7
    stitches, _ = machine.drive(controller, 30)
    assert stitches[-1] == 1


def test_outliers_change_nothing():
    machine = Machine(LATENCIES)
    controller = BudgetController(LATENCIES, target_ms=25, load=1, clock=machine.clock)
    machine.drive(controller, 40)
    stitch = controller.stitch
    for n in range(40):
        slow = n % 5 < 2
        assert controller.update(LATENCIES[stitch] * (20 if slow else 1)) == stitch


def test_the_first_call_does_not_count():
    controller = BudgetController(LATENCIES, target_ms=25)
    controller.update(1e4)
    for _ in range(5):
        controller.update(10)
    assert controller.load == 1


def test_an_impossible_target_runs_the_cheapest_and_says_so_once(warnings_of):
    machine = Machine(LATENCIES)
    controller = BudgetController(LATENCIES, target_ms=5, load=1, clock=machine.clock)
    stitches, _ = machine.drive(controller, 50)
    assert set(stitches) == {0}
    assert warnings_of == [
        'stitch 0, the cheapest one, takes 10 ms; the target of 5 ms cannot be met'
    ]
    machine.load = 0.3
    machine.drive(controller, 50)
    assert controller.stitch > 0
    machine.load = 1
    machine.drive(controller, 50)
    assert controller.stitch == 0
    assert len(warnings_of) == 2


def test_a_target_that_is_easily_met_runs_the_best(warnings_of):
    machine = Machine(LATENCIES, noise=0.1)
    controller = BudgetController(LATENCIES, target_ms=500, clock=machine.clock)
    stitches, _ = machine.drive(controller, 50)
    assert set(stitches[6:]) == {20}
    assert warnings_of == []


def test_a_failed_call_teaches_nothing():
    machine = Machine(LATENCIES)
    controller = BudgetController(LATENCIES, target_ms=25, clock=machine.clock)
    machine.drive(controller, 5)

    def fail():
        with controller.measure():
            machine.now += 100
            raise KeyError

    pytest.raises(KeyError, fail)
    machine.drive(controller, 1)
    assert controller.load == pytest.approx(1)


def results_of(*scores, **directions):
    stitches = [
        StitchResult(i, 'FS', '', flops=flops, params=0, metrics={'m': score})
        for i, (flops, score) in enumerate(zip((10, 40, 20, 30), scores, strict=True))
    ]
    return StitchResults(stitches, 'm', directions, (32, 32))


@pytest.mark.parametrize(('sign', 'direction'), [(1, 'higher'), (-1, 'lower')])
def test_candidates_of_results_are_their_front(sign, direction):
    results = results_of(sign * 1, sign * 4, sign * 3, sign * 2, m=direction)
    controller = BudgetController.from_results(results, target_ms=1)
    assert controller.costs == {0: 10, 2: 20, 1: 40}
    latencies = {0: 7, 1: 5, 2: 6, 3: 9}
    controller = BudgetController.from_results(results, latencies, target_ms=1)
    assert controller.costs == {1: 5}


def test_nan_is_never_run():
    results = results_of(1, math.nan, 3, 4, m='higher')
    controller = BudgetController.from_results(results, target_ms=1)
    assert controller.costs == {0: 10, 2: 20, 3: 30}
    assert BudgetController(LATENCIES, {0: math.nan, 5: 2}, target_ms=1).stitch == 5
    for direction in ('higher', 'lower'):
        results = results_of(*[math.nan] * 4, m=direction)
        with pytest.raises(ValueError, match='m is NaN for all 4 stitches'):
            BudgetController.from_results(results, target_ms=1)


def test_of_an_unknown_metric_the_direction_is_asked_for():
    build = partial(BudgetController.from_results, results_of(1, 2, 3, 4), target_ms=1)
    with pytest.raises(ValueError, match='--lower-is-better m'):
        build()
    assert list(build(lower_is_better=['m']).costs) == [0]
    assert list(build(lower_is_better=['none']).costs) == [0, 2, 3]


def update(elapsed_ms):
    BudgetController(LATENCIES, target_ms=1).update(elapsed_ms)


def fit(*measured):
    fit_times({0: 1, 1: 2}, dict(enumerate(measured)))


NO_NUMBERS = (0, -1, math.nan, math.inf)
TARGETS = [
    {},
    dict(target_ms=3, target_fps=3),
    *[dict(target_fps=t) for t in NO_NUMBERS],
]
COSTS = [{}, *[{0: 1, 1: cost} for cost in NO_NUMBERS]]


@pytest.mark.parametrize(
    ('call', 'key'),
    [
        *[
            (partial(BudgetController, LATENCIES, **t), 'target_fps|-fps')
            for t in TARGETS
        ],
        *[(partial(BudgetController, c, target_ms=1), 'costs') for c in COSTS],
        *[(partial(update, time), 'elapsed_ms') for time in NO_NUMBERS],
        *[(partial(fit, *times), 'measured_ms') for times in ((5,), (5, 5), (6, 5))],
    ],
)
def test_numbers_that_cannot_be(call, key):
    with pytest.raises(ValueError, match=key):
        call()


def test_times_are_fitted_by_a_line():
    costs = {0: 2e9, 1: 10e9, 5: 4e9, 7: 1e9}
    fitted = fit_times(costs, {0: 7, 1: 23})
    assert fitted == pytest.approx({0: 7, 1: 23, 5: 11, 7: 5})
    # Beyond the measured ones the line may fall below zero; times do not.
    assert fit_times({0: 10, 1: 20, 2: 1}, {0: 1, 1: 11})[2] == 0.1
