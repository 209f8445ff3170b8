"""Layer norms of feature maps."""

from __future__ import annotations

from collections.abc import Sequence

import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check, register

DEFAULT_NORM = dict(type='MapLayerNorm', eps=1e-5)


@register(MODELS)
class MapLayerNorm(nn.LayerNorm):
    """Layer norm over the channels of every place of a map.

    In mm configs, ``norm_cfg=dict(type='MapLayerNorm')``. ViTDet has it in its pyramid
    and heads: unlike batch norm it does not mix the statistics of stitches.
    """

    def __init__(self, num_channels: int, eps: float = 1e-6) -> None:
        super().__init__(num_channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise maps ``(B, C, H, W)``."""
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        # mmcv's RoIAlign reads memory as if it were in this order.
        return x.permute(0, 3, 1, 2).contiguous()


@register(MODELS, 'MapNorms')  # its name in earlier versions
@register(MODELS)
class NormPerMap(BaseModule):
    """Layer norms between a backbone and a dense head, one per map.

    Swin has them after its stages in mmseg and mmdet. As a neck they serve every
    stitch, whichever anchor its maps come from, and train at the rate of the head. In
    front of another neck, both go into a list: ``neck=[dict(type='NormPerMap', ...),
    dict(type='FPN', ...)]``.

    Args:
        in_channels: Channels of every map.
        norm_cfg: Config of the norms.
        init_cfg: mmengine's initialisation config.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        norm_cfg: dict = DEFAULT_NORM,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.norms = nn.ModuleList(
            MODELS.build(dict(norm_cfg, num_channels=n)) for n in in_channels
        )

    def forward(self, maps: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Normalise maps ``(B, C, H, W)``; one that nothing reads, None, stays so."""
        wanted = f'{len(self.norms)} maps of the backbone, one per norm'
        check(len(maps) == len(self.norms), 'neck.in_channels', len(maps), wanted)
        pairs = zip(self.norms, maps, strict=True)
        return tuple(None if x is None else norm(x) for norm, x in pairs)
