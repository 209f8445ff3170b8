"""Stitching layers: maps from one anchor's activations to another's."""

from __future__ import annotations

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors.low_rank import LowRankUpdate
from snnet_mm.anchors.token_state import TokenState


@MODELS.register_module()
class StitchingLayer(nn.Linear):
    """An affine map of every token (SN-Net's 1x1 convolution), fully trained.

    Args:
        in_dim: Width of the anchor that is left.
        out_dim: Width of the anchor that is entered.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__(in_dim, out_dim)

    def map_state(self, state: TokenState) -> TokenState:
        """The state in the other anchor: every token mapped, on the same grid.

        Routes call this of whatever joins two anchors.
        """
        return state._replace(tokens=self(state.tokens))

    def config(self) -> tuple[int, int]:
        """What :class:`SingleStitch` builds it from: the widths."""
        return self.in_features, self.out_features

    @torch.no_grad()
    def set_map(self, weight: Tensor, bias: Tensor) -> None:
        """Take over a least-squares map.

        Args:
            weight: Of shape ``(out_dim, in_dim)``.
            bias: Of shape ``(out_dim,)``.
        """
        self.weight.copy_(weight)
        self.bias.copy_(bias)

    def merged(self) -> StitchingLayer:
        """The same map as one plain stitching layer, as a shipped stitch runs it."""
        return self


@MODELS.register_module()
class LoRAStitchingLayer(LowRankUpdate, StitchingLayer):
    """A frozen affine map with a trained low-rank update (SN-Netv2, section 4.3).

    The first forward equals the least-squares map. Equation 3 of the paper has the
    letters of :class:`LowRankUpdate` the other way round.

    Args:
        in_dim: Width of the anchor that is left.
        out_dim: Width of the anchor that is entered.
        rank: Rank of the update, or a share of the smaller width: ESTA has 0.25.
        alpha: Scale of the update before division by the rank; None for the rank
            itself, so that the update is not scaled, as in ESTA.

    Raises:
        ValueError: If the rank is not positive or exceeds one of the widths.
    """

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        rank: int | float,
        alpha: float | None = 1,
    ) -> None:
        super().__init__(in_dim, out_dim)
        if isinstance(rank, float):
            rank = _share_of_width(rank, min(in_dim, out_dim))
        alpha = rank if alpha is None else alpha
        self.add_update(rank, alpha, 'stitching_layer.rank')

    def merged(self) -> StitchingLayer:
        """See :meth:`StitchingLayer.merged`."""
        with self.weight.device:
            layer = StitchingLayer(self.in_features, self.out_features)
        return self.merged_into(layer)


def _share_of_width(share: float, width: int) -> int:
    """The rank that a share of a width is.

    Raises:
        ValueError: If it is none, or not a whole number of 1 or more.
    """
    if not 0 < share <= 1 or not (share * width).is_integer():
        raise ValueError(
            f'rank={share} of a low-rank update, a share of the width {width}; allowed '
            'are shares above 0 and up to 1 that give a whole number, and whole '
            'numbers as the rank itself (config key: stitching_layer.rank)'
        )
    return int(share * width)
