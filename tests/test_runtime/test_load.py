import random
from statistics import mean

import pytest

from snnet_mm.runtime.load import MEMORY, RECENT, UNKNOWN, Load


def test_load_of_few_calls_is_their_median():
    load = Load()
    assert load.value is None
    assert not load.settled
    for ratio, value in ((3, 3), (1, 2), (4, 3), (9, 3.5)):
        assert not load.add(ratio)
        assert (load.value, load.error()) == (value, UNKNOWN)
    load.add(2)
    assert load.settled
    # What is known before counts as one call.
    load = Load(1.0)
    assert load.value == 1
    load.add(2)
    assert load.value == 1.5


@pytest.mark.parametrize('factor', [2, 0.5, 1.3])
def test_load_follows_change_and_ignores_outliers(factor):
    load = Load()
    for _ in range(MEMORY):
        load.add(2)
    for ratio in (20, 2, 2, 20, 2, 0.1):
        assert not load.add(ratio)
        assert load.value == 2
    for _ in range(RECENT):
        load.add(2)
    changed = [load.add(2 * factor) for _ in range(RECENT)]
    assert changed.index(True) == RECENT // 2
    assert load.value == 2 * factor
    load.forget()
    assert load.value == 2 * factor
    assert not load.settled


def test_load_of_short_memory_follows_a_steady_rise():
    """Each step is too small to count as a change."""
    short, long = Load(1.0, RECENT), Load(1.0)
    rising = [1 + 0.02 * i for i in range(1, MEMORY)]
    assert not any(short.add(ratio) for ratio in rising)
    for ratio in rising:
        long.add(ratio)
    assert short.value == rising[-3]
    assert long.value < rising[-5]


def test_load_error_is_that_of_medians():
    """Two standard errors; no noise looks like a change."""
    noise, off, errors = random.Random(0), [], []
    for _ in range(200):
        load = Load()
        assert not any(load.add(noise.gauss(1, 0.05)) for _ in range(MEMORY))
        off.append(abs(load.value - 1) > load.error())
        errors.append(load.error())
    assert mean(off) < 0.1
    assert mean(errors) == pytest.approx(2 * 1.25 * 0.05 / MEMORY**0.5, rel=0.1)
    assert load.error(1) == pytest.approx(load.error() * MEMORY**0.5)
