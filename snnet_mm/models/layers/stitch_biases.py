"""Biases that belong to one stitch each (ESTA)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import nn

from snnet_mm.anchors import LayerBiases
from snnet_mm.stitching import Stitch


class StitchBiases(nn.Module):
    """A set of biases ``b^s`` for every stitch: ``W x + b + b^s`` (ESTA, section 4.1).

    A set is for the blocks that its stitch runs, and is one parameter named after the
    stitch id: where a stitch is not trained, its biases have no gradient and no
    optimizer moves them. All begin at zero.

    Args:
        stitches: The stitches.
        widths: For every anchor and each of its blocks, the widths of the linear layers
            that take biases, by their names in the anchor.
    """

    def __init__(
        self,
        stitches: Iterable[Stitch],
        widths: Sequence[Sequence[Mapping[str, int]]],
    ) -> None:
        super().__init__()
        self.num_anchors = len(widths)
        self._layers: dict[int, dict[tuple[int, str], int]] = {}
        for stitch in stitches:
            layers = {
                (anchor, name): width
                for anchor, begin, end in stitch.segments
                for block in range(begin, end)
                for name, width in widths[anchor][block].items()
            }
            biases = nn.Parameter(torch.zeros(sum(layers.values())))
            self.register_parameter(str(stitch.id), biases)
            self._layers[stitch.id] = layers

    def forward(self, stitch_id: int) -> list[LayerBiases]:
        """The biases of a stitch, for every anchor.

        Raises:
            ValueError: If there are none for this stitch.
        """
        if stitch_id not in self._layers:
            raise ValueError(
                f'there are no biases of stitch {stitch_id!r}; allowed are '
                f'{list(self._layers)} (config keys: backbone.stitch_bias, '
                'backbone.stitch_ids)'
            )
        layers = self._layers[stitch_id]
        biases: list[LayerBiases] = [{} for _ in range(self.num_anchors)]
        parts = self.get_parameter(str(stitch_id)).split(list(layers.values()))
        for (anchor, name), part in zip(layers, parts, strict=True):
            biases[anchor][name] = part
        return biases
