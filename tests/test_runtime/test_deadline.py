import random

import pytest

from snnet_mm.runtime.deadline import choose

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
    assert choose(FRONT, slack, waiting, rate) == best


def simulate(rule, rate, front, deadline=300, number=3000):
    """Return the mean score of arrivals by chance, where a miss counts 0."""
    draw, arrivals, now, queue, total = random.Random(0), [], 0, [], 0
    for _ in range(number):
        arrivals.append((arrivals[-1] if arrivals else 0) + draw.expovariate(rate))
    left = list(reversed(arrivals))
    while left or queue:
        now = now if queue else max(now, left[-1])
        while left and left[-1] <= now:
            queue.append(left.pop())
        stitch = rule(queue[0] + deadline - now, len(queue))
        begin = queue.pop(0)
        if stitch is not None:
            now += front[stitch][0]
            total += front[stitch][1] if now <= begin + deadline else 0
    return total / number


@pytest.mark.parametrize('per_second', [6, 10, 16, 24])
def test_the_rule_is_ahead_of_every_stitch_alone(per_second):
    front = dict(a=(30, 48.5), b=(38, 51.6), c=(53, 55.9), d=(69, 57.8), e=(100, 60.0))
    times, rate = {i: ms for i, (ms, _) in front.items()}, per_second / 1000
    ours = simulate(lambda *x: choose(times, *x, rate), rate, front)
    alone = {
        i: simulate(lambda s, _, i=i: i if times[i] <= s else None, rate, front)
        for i in front
    }
    blind = simulate(lambda slack, _: choose(times, slack, 1), rate, front)
    assert ours > max(*alone.values(), blind) - 0.3
    assert ours > alone['a'] + 2
