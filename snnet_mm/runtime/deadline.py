"""Selection of the stitch for a request while others are queued."""

from collections.abc import Hashable, Mapping
from operator import itemgetter
from typing import TypeVar

Key = TypeVar('Key', bound=Hashable)


def choose(
    front: Mapping[Key, float], slack: float, waiting: int, rate: float = 0.0
) -> Key | None:
    """Choose the best stitch that lets all queued requests meet their deadlines.

    If a request takes ``t``, ``rate * t`` more arrive meanwhile. The stitch must be
    able to run once per request, new ones included, within the most urgent slack.

    Args:
        front: Time of every stitch on the Pareto front, worst stitch first.
        slack: Time until the deadline of the most urgent request.
        waiting: Number of queued requests, including the current one.
        rate: Requests that arrive per unit of time.

    Returns:
        The best such stitch. If none is fast enough for all requests, the fastest one;
        if that is too slow even for the most urgent request alone, None.
    """
    times = [(key, t) for key, t in front.items() if t <= slack]
    within = [key for key, t in times if t * (waiting + rate * t) <= slack]
    fastest = min(times, key=itemgetter(1), default=(None, 0))  # times are learnt
    return within[-1] if within else fastest[0]
