"""The walk along a route, used by all backbones, and states cached between walks."""

from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate, takewhile

import torch
from torch import Tensor, nn

from snnet_mm.anchors import Anchor, TokenState
from snnet_mm.stitching import Position, Step

# A position on a route, and the stitching layer that maps its state, or None.
Tap = tuple[Position, str | None]


def walk(
    anchors: Sequence[Anchor],
    layers: Mapping[str, nn.Module],
    steps: Sequence[Step],
    images: Tensor,
    taps: Collection[Tap] = (),
    kept: dict[Tap, TokenState] | None = None,
) -> tuple[TokenState, dict[Tap, TokenState]]:
    """Run a route on images ``(B, 3, H, W)``; return the final and the tapped states.

    ``layers`` are stitching layers by name. ``steps`` are those of a :class:`Stitch`,
    and ``taps`` lie on its route. ``kept`` contains states of a route with the same
    first steps; the walk adds all states of this route.
    """
    states = {} if kept is None else kept
    places = accumulate(steps, lambda a, b: a if isinstance(b, str) else b)
    joints = {*zip(places, steps, strict=True)}
    beside = [tap for tap in taps if tap[1] and tap not in joints]
    state, here = None, None
    for step in steps:
        tap = (here, step) if isinstance(step, str) else (step, None)
        if tap in states:
            state = states[tap]
        elif isinstance(step, str):
            state = layers[step].map_state(state)
        elif step.block < 0:
            state = anchors[step.anchor].embed(images)
        else:
            state = anchors[step.anchor].run_block(state, step.block)
        if kept is not None or tap in taps:
            states[tap] = state
        if not isinstance(step, str):
            here = step
            for tapped, layer in beside:
                if tapped == here and (here, layer) not in states:
                    states[here, layer] = layers[layer].map_state(state)
    return state, {tap: states[tap] for tap in taps}


class PrefixCache:
    """Caches the states of the last route, per batch of images since :meth:`rewind`.

    In slide mode every stitch sees the same crops in the same order. Images are
    compared by value, so that other images never reuse these states.
    """

    def __init__(self) -> None:
        self._runs: list[tuple[Tensor, Sequence[Step], dict[Tap, TokenState]]] = []
        self._next = 0

    def rewind(self) -> None:
        """Expect the first images again, as another stitch is about to run."""
        self._next = 0

    def states(self, images: Tensor, steps: Sequence[Step]) -> dict[Tap, TokenState]:
        """Return the states shared with the last route; the walk adds new ones."""
        place, self._next = self._next, self._next + 1
        if place < len(self._runs):
            seen, last, states = self._runs[place]
            if torch.equal(seen, images):
                pairs = zip(last, steps, strict=False)
                shared = {a for a, _ in takewhile(lambda p: p[0] == p[1], pairs)}
                states = {tap: s for tap, s in states.items() if tap[0] in shared}
                self._runs[place] = seen, steps, states
                return states
        # A copy, because the caller may write new images into the same memory.
        states = {}
        self._runs[place:] = [(images.clone(), steps, states)]
        return states
