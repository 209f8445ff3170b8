"""Necks between backbones and dense heads: norms of maps, and ViTDet's pyramid."""

import math
from collections.abc import Sequence

import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check

SWIN_NORM = dict(type='MapLayerNorm', eps=1e-5)
VITDET_NORM = dict(type='MapLayerNorm')


@MODELS.register_module()
class MapLayerNorm(nn.LayerNorm):
    """Layer norm over the channels at each position of a map.

    Selected in mm configs by ``norm_cfg=dict(type='MapLayerNorm')``. Unlike batch norm,
    it does not mix statistics of stitches.
    """

    def __init__(self, num_channels: int, eps: float = 1e-6) -> None:
        super().__init__(num_channels, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise maps ``(B, C, H, W)``."""
        x = x.permute(0, 2, 3, 1)
        x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)
        # mmcv's RoIAlign assumes contiguous (B, C, H, W) memory.
        return x.permute(0, 3, 1, 2).contiguous()


@MODELS.register_module()
class NormPerMap(BaseModule):
    """Layer norms between a backbone and a dense head, one per map.

    In mmseg and mmdet, Swin has them after its stages. ``in_channels`` are those of
    every map. Another neck may follow: ``neck=[dict(type='NormPerMap', ...),
    dict(type='FPN', ...)]``.
    """

    def __init__(
        self,
        in_channels: Sequence[int],
        norm_cfg: dict = SWIN_NORM,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.in_channels = in_channels
        self.norms = nn.ModuleList(
            MODELS.build(dict(norm_cfg, num_channels=n)) for n in in_channels
        )

    def forward(self, maps: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
        """Normalise maps ``(B, C, H, W)``; None, for an unread map, stays None."""
        pairs = zip(self.norms, maps, strict=True)
        return tuple(None if x is None else norm(x) for norm, x in pairs)


@MODELS.register_module()
class SimpleFeaturePyramid(BaseModule):
    """A feature pyramid from the last map of a plain backbone (ViTDet, section 3).

    Each level deconvolves or max-pools the map, then applies a 1x1 and a 3x3
    convolution with norms. Further levels subsample the previous one. Images must be
    padded to multiples of the largest stride (``data_preprocessor.pad_size_divisor``).

    Args:
        in_channels: Channels of the map: the slow anchor's width.
        out_channels: Channels of every level. Default: 256.
        in_stride: Stride of the map: the anchors' patch size. Default: 16.
        strides: Strides of the levels, each twice the previous one.
        norm_cfg: Config of the norms.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 256,
        in_stride: int = 16,
        strides: Sequence[int] = (4, 8, 16, 32, 64),
        norm_cfg: dict = VITDET_NORM,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        self.in_channels, self.strides = in_channels, tuple(strides)
        first = next(iter(strides), 0)
        doubled = all(s == first * 2**i for i, s in enumerate(strides))
        # The first level doubles the map's stride, keeps it or halves it repeatedly.
        reached = first in [2 * in_stride / 2**i for i in range(16)]
        expected = f'doubling strides, from {2 * in_stride} divided by a power of two'
        check(doubled and reached, 'neck.strides', self.strides, expected)
        self.levels = nn.ModuleList(
            _level(in_channels, out_channels, in_stride, stride, norm_cfg)
            for stride in self.strides
            if stride <= 2 * in_stride
        )

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return levels of the last map ``(B, in_channels, H, W)``, finest first."""
        levels = [level(maps[-1]) for level in self.levels]
        while len(levels) < len(self.strides):
            levels.append(F.max_pool2d(levels[-1], kernel_size=1, stride=2))
        return tuple(levels)


def _level(
    dim: int, out_dim: int, in_stride: int, stride: int, norm_cfg: dict
) -> nn.Sequential:
    """Return one level: resampling of the map, then two convolutions."""

    def norm(channels: int) -> nn.Module:
        return MODELS.build(dict(norm_cfg, num_channels=channels))

    layers = [nn.MaxPool2d(2)] if stride > in_stride else []
    for i in range(round(math.log2(in_stride / stride))):
        if i:
            layers += [norm(dim), nn.GELU()]
        layers.append(nn.ConvTranspose2d(dim, dim // 2, 2, stride=2))
        dim //= 2
    layers += [nn.Conv2d(dim, out_dim, 1, bias=False), norm(out_dim)]
    last = nn.Conv2d(out_dim, out_dim, 3, padding=1, bias=False)
    return nn.Sequential(*layers, last, norm(out_dim))
