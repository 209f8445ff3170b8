"""The one walk along a route that all backbones share."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from mmengine.model import BaseModule
from torch import Tensor

from snnet_mm.anchors import LayerBiases, TokenState
from snnet_mm.stitching import Position, Step


@dataclass
class Stop:
    """A place on a route.

    Args:
        step: The embedding, block or stitching layer that led here.
        state: The state behind it.
        crossed: That state behind the stitching layers it was sent through.
    """

    step: Step
    state: TokenState
    crossed: dict[str, TokenState] = field(default_factory=dict)


class RouteWalk(BaseModule):
    """Walks along routes of its ``anchors`` and ``stitching_layers``."""

    def walk(
        self,
        steps: Sequence[Step],
        images: Tensor,
        taps: Collection[Position],
        path: list[Stop] | None = None,
        biases: Sequence[LayerBiases] | None = None,
    ) -> tuple[Stop, dict[Position, Stop]]:
        """Run a route on images ``(B, 3, H, W)``.

        Args:
            steps: The route.
            images: The images.
            taps: Positions whose stops are wanted.
            path: Stops of the first steps, where the walk goes on; extended by the
                others. By default it begins with the embedding and keeps only ``taps``.
            biases: Biases of the stitch for each anchor, if it has some of its own.

        Returns:
            The last stop, and those at ``taps``.
        """
        done = path or []
        tapped = {stop.step: stop for stop in done if stop.step in taps}
        stop = done[-1] if done else None
        for step in steps[len(done) :]:
            stop = Stop(step, self._take(step, stop, images, biases))
            if path is not None:
                path.append(stop)
            if step in taps:
                tapped[step] = stop
        return stop, tapped

    def cross(self, layer: str, stop: Stop) -> TokenState:
        """The state at a stop behind a stitching layer, computed once."""
        if layer not in stop.crossed:
            stop.crossed[layer] = self.stitching_layers[layer].map_state(stop.state)
        return stop.crossed[layer]

    def _take(
        self,
        step: Step,
        stop: Stop | None,
        images: Tensor,
        biases: Sequence[LayerBiases] | None,
    ) -> TokenState:
        """The state one step further."""
        if stop is None:
            return self.anchors[step.anchor].embed(images)
        if isinstance(step, str):
            return self.cross(step, stop)
        anchor, block = step
        own = {} if biases is None else dict(biases=biases[anchor])
        return self.anchors[anchor].run_block(stop.state, block, **own)
