"""The stitch for a request that others wait behind."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

Key = TypeVar('Key', bound=Hashable)


def choose(
    front: Mapping[Key, float], slack: float, waiting: int, rate: float = 0.0
) -> Key | None:
    """Choose the best stitch with which all that wait can be in time.

    If a request takes ``t``, ``rate * t`` more arrive meanwhile. The slack of the most
    urgent request must be enough for one stitch to run as often as there are requests.

    Args:
        front: Time of every stitch on the Pareto front, from the fastest on.
        slack: Time until the deadline of the most urgent request.
        waiting: Requests that wait, this one included.
        rate: Requests that arrive per unit of time.

    Returns:
        The fastest stitch if none is fast enough for all, None if it is too slow for
        the most urgent request alone.
    """
    times = [(key, t) for key, t in front.items() if t <= slack]
    within = [key for key, t in times if t * (waiting + rate * t) <= slack]
    return within[-1] if within else next((key for key, _ in times), None)
