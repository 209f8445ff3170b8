import pytest

from snnet_mm.runtime.deadline import best_in_time

FRONT = dict(fast=10, middle=20, slow=40)


@pytest.mark.parametrize(
    ('slack', 'waiting', 'rate', 'best'),
    [
        (40, 1, 0, 'slow'),
        (39, 1, 0, 'middle'),
        (40, 2, 0, 'middle'),
        (40, 4, 0, 'fast'),
        (40, 9, 0, 'fast'),  # not all can be in time
        (9, 1, 0, None),
        # In 40 ms one more arrives, so that 80 are needed.
        (79, 1, 1 / 40, 'middle'),
        (80, 1, 1 / 40, 'slow'),
    ],
)
def test_the_slack_is_shared_by_all_that_wait(slack, waiting, rate, best):
    assert best_in_time(FRONT, slack, waiting, rate) == best


def test_the_fastest_is_the_fallback_also_where_times_have_changed():
    assert best_in_time(dict(worst=30, best=20), 40, 9) == 'best'
