"""Selection of the stitch for a request while others are queued."""

from collections.abc import Mapping

from .budgets import Key, best_within


def best_in_time(
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
    front = {key: t for key, t in front.items() if t <= slack}
    of_all = {key: t * (waiting + rate * t) for key, t in front.items()}
    best = best_within(of_all, slack)
    # Times are learnt, so the first one need not be the fastest.
    return min(front, key=front.get, default=None) if best is None else best
