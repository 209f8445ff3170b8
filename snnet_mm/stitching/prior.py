"""A guess at which stitches are good, for models that were not evaluated yet."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from .routes import Stitch
from .space import StitchingSpace

# What a change of anchor at the very end of a route costs, in units of the whole range
# of FLOPs; earlier ones cost less in proportion to their depth.
INTO_SLOWER, INTO_FASTER = 0.3, 0.2


def prior_scores(space: StitchingSpace, flops: Mapping[int, float]) -> dict[int, float]:
    """Score of every stitch, higher for those that are likely to be better.

    More FLOPs are better, and every change of anchor is worse the later it comes: the
    more so if the route goes on in the slower anchor. That stitching early is better,
    that SFS is the weakest kind and that SF leads at low FLOPs is what SN-Netv2 finds
    in appendix E; the two weights were chosen on the authors' ADE20K results.
    docs/choosing.md says how well it ranks.

    Args:
        space: The stitching space.
        flops: FLOPs by stitch id.
    """
    low, high = min(flops.values()), max(flops.values())
    return {
        s.id: (flops[s.id] - low) / ((high - low) or 1) - _penalty(s, space.depths)
        for s in space
    }


def _penalty(stitch: Stitch, depths: tuple[int, ...]) -> float:
    """What the changes of anchor cost."""
    return sum(
        (INTO_SLOWER if after.anchor > before.anchor else INTO_FASTER)
        * (before.end / depths[before.anchor])
        for before, after in pairwise(stitch.segments)
    )
