"""The Pareto front: stitches that no other stitch beats at an equal or lower cost."""

from __future__ import annotations

from collections.abc import Mapping


def pareto_front(
    costs: Mapping[int, float], scores: Mapping[int, float], higher_is_better=True
) -> list[int]:
    """Stitch ids on the Pareto front, ascending in cost.

    Args:
        costs: Cost of each stitch by id, in any unit.
        scores: Score of each stitch by id. Stitches without a cost are an error.
        higher_is_better: Whether a larger score is better.

    Returns:
        Ids whose score is strictly better than that of every stitch of equal or lower
        cost; of stitches equal in both, the smallest id.

    Raises:
        ValueError: If a scored stitch has no cost.
    """
    unknown = sorted(set(scores) - set(costs))
    if unknown:
        raise ValueError(f'stitches {unknown} have a score but no cost')
    sign = 1 if higher_is_better else -1
    front: list[int] = []
    for stitch_id in sorted(scores, key=lambda i: (costs[i], -sign * scores[i], i)):
        if not front or sign * (scores[stitch_id] - scores[front[-1]]) > 0:
            front.append(stitch_id)
    return front
