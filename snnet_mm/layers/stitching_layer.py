"""Stitching layers: maps from one anchor's activations to another's."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn


@MODELS.register_module()
class StitchingLayer(nn.Linear):
    """An affine map of every token (SN-Net's 1x1 convolution), fully trained.

    Args:
        in_dim: Width of the anchor that is left.
        out_dim: Width of the anchor that is entered.
    """

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__(in_dim, out_dim)

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
class LoRAStitchingLayer(StitchingLayer):
    """A frozen affine map with a trained low-rank update (SN-Netv2, section 4.3).

    ``y = x W' + b + (alpha / rank) (x A') B'`` with A random and B zero, so that the
    first forward equals the least-squares map. The letters are those of loralib and
    peft; equation 3 of the paper has them the other way round.

    Args:
        in_dim: Width of the anchor that is left.
        out_dim: Width of the anchor that is entered.
        rank: Rank of the update.
        alpha: Scale of the update before division by the rank.

    Raises:
        ValueError: If the rank is not positive or exceeds one of the widths.
    """

    def __init__(self, in_dim: int, out_dim: int, rank: int, alpha: float = 1) -> None:
        super().__init__(in_dim, out_dim)
        if not 0 < rank <= min(in_dim, out_dim):
            raise ValueError(
                f'rank={rank} of a low-rank stitching layer from width {in_dim} to '
                f'{out_dim}; allowed are 1 to {min(in_dim, out_dim)} (config key: '
                'stitching_layer.rank)'
            )
        self.rank = rank
        self.scaling = alpha / rank
        self.weight.requires_grad_(False)
        self.bias.requires_grad_(False)
        self.lora_A = nn.Parameter(torch.empty(rank, in_dim))
        self.lora_B = nn.Parameter(torch.zeros(out_dim, rank))
        nn.init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    def forward(self, x: Tensor) -> Tensor:
        """Map activations ``(..., in_dim)`` to ``(..., out_dim)``."""
        update = F.linear(F.linear(x, self.lora_A), self.lora_B)
        return super().forward(x) + self.scaling * update

    def merged(self) -> StitchingLayer:
        """See :meth:`StitchingLayer.merged`."""
        with self.weight.device:
            layer = StitchingLayer(self.in_features, self.out_features)
        layer.to(self.weight)
        layer.set_map(self.weight + self.scaling * self.lora_B @ self.lora_A, self.bias)
        return layer
