"""A guess at which stitches are good, for models that were not evaluated yet."""

from collections.abc import Mapping
from itertools import pairwise

from snnet_mm.utils import check

from .space import StitchingSpace

# Penalty of a change of anchor at the very end of a route, in units of the range of
# FLOPs between its anchors; earlier ones cost less in proportion to their depth.
INTO_SLOWER, INTO_FASTER = 0.3, 0.2


def prior_scores(space: StitchingSpace, flops: Mapping[int, float]) -> dict[int, float]:
    """Score of every stitch, higher for those that are likely to be better.

    The anchors score 0, 1, 2 and so on. Between the FLOPs of its fastest and slowest
    anchor a stitch scores in proportion, and every change of anchor is worse the later
    it comes, as SN-Netv2 finds in appendix E: the more so into the slower anchor. The
    two weights were chosen on the authors' ADE20K results. How well it ranks is in
    docs/how_to/choosing.md.
    """
    wanted = 'results of an evaluation: no guess is made for a ' + type(space).__name__
    check(space.has_prior, '--results', None, wanted)
    anchor_flops = [flops[i] for i in space.anchor_ids]
    scores = {}
    for stitch in space:
        anchors = [segment.anchor for segment in stitch.segments]
        low, high = min(anchors), max(anchors)
        least, most = anchor_flops[low], anchor_flops[high]
        place = (flops[stitch.id] - least) / ((most - least) or 1)
        penalty = sum(
            (INTO_SLOWER if after.anchor > before.anchor else INTO_FASTER)
            * (before.end / space.depths[before.anchor])
            for before, after in pairwise(stitch.segments)
        )
        scores[stitch.id] = low + (high - low) * (place - penalty)
    return scores
