"""States that neighbouring stitches share: those along the route that ran last."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from snnet_mm.anchors import TokenState
from snnet_mm.stitching import Step, common_prefix

from .walk import Tap


class PrefixCache:
    """The states of the route that ran last, for each images since :meth:`rewind`.

    In slide mode a stitch sees one crop after the other, and the next stitch sees the
    same crops in the same order; each has states of its own. Images are compared by
    value, so that others never meet states that are not theirs.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Tensor, Sequence[Step], dict[Tap, TokenState]]] = []
        self._next = 0

    def rewind(self) -> None:
        """Expect the first images again: another stitch is about to run."""
        self._next = 0

    def states(self, images: Tensor, steps: Sequence[Step]) -> dict[Tap, TokenState]:
        """Return the states that a route shares with the last one; the walk adds."""
        place, self._next = self._next, self._next + 1
        states = {}
        if place < len(self._runs):
            seen, last, states = self._runs[place]
            if seen.shape == images.shape and torch.equal(seen, images):
                shared = set(steps[: common_prefix(last, steps)])
                states = {tap: s for tap, s in states.items() if tap[0] in shared}
                self._runs[place] = seen, steps, states
                return states
            states = {}
        # A copy, because the caller may write new images into the same memory.
        self._runs[place:] = [(images.clone(), steps, states)]
        return states
