"""What neighbouring stitches share: the states along the route that ran last."""

from __future__ import annotations

import torch
from torch import Tensor

from snnet_mm.stitching import Step, common_prefix

from .route_walk import Stop


class PrefixCache:
    """The path that ran last, for each of the images given since :meth:`rewind`.

    In slide mode a stitch sees one crop after the other, and the next stitch sees the
    same crops in the same order; each has a path. Images are compared by value, so
    that others never meet a path that is not theirs.
    """

    def __init__(self) -> None:
        self._paths: list[tuple[Tensor, list[Stop]]] = []
        self._next = 0

    def rewind(self) -> None:
        """Expect the first images again: another stitch is about to run."""
        self._next = 0

    def resume(self, images: Tensor, steps: tuple[Step, ...]) -> list[Stop]:
        """The path of these images, cut to what a route of ``steps`` shares with it.

        The caller appends what it runs.
        """
        place, self._next = self._next, self._next + 1
        if place < len(self._paths):
            seen, path = self._paths[place]
            if seen.shape == images.shape and torch.equal(seen, images):
                del path[common_prefix([stop.step for stop in path], steps) :]
                return path
        # A copy, because the caller may write new images into the same memory.
        self._paths[place:] = [(images.clone(), [])]
        return self._paths[place][1]
