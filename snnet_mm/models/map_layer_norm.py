"""Layer norm for feature maps."""

from __future__ import annotations

import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn


@MODELS.register_module()
class MapLayerNorm(nn.LayerNorm):
    """Layer norm over the channels of every place of a map.

    In mm configs, ``norm_cfg=dict(type='MapLayerNorm')``. ViTDet has it in its pyramid
    and heads: unlike batch norm it does not mix the statistics of stitches.

    Args:
        num_channels: Channels of the maps.
        eps: Added to the variance.
    """

    def __init__(self, num_channels: int, eps: float = 1e-6) -> None:
        super().__init__(num_channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise maps ``(B, C, H, W)``."""
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        # mmcv's RoIAlign reads memory as if it were in this order.
        return x.permute(0, 3, 1, 2).contiguous()
