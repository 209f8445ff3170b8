"""ViTDet's pyramid: all levels are made of one map."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch.nn.functional as F
from mmengine.model import BaseModule
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check, register

DEFAULT_NORM = dict(type='MapLayerNorm')


@register(MODELS)
class SimpleFeaturePyramid(BaseModule):
    """A feature pyramid of the last map of a plain backbone (ViTDet, section 3).

    Levels below the stride of the map are deconvolved from it, the one above it is
    max-pooled, and each gets a 1x1 and a 3x3 convolution with norms. Every further
    level takes every other place of the level before it.

    Images are to be padded to multiples of the largest stride (config key:
    ``data_preprocessor.pad_size_divisor``).

    Args:
        in_channels: Channels of the map: the slow anchor's width.
        out_channels: Channels of every level.
        in_stride: Pixels between the places of the map: the anchors' patch size.
        strides: The same for every level, finest first, each twice the one before it;
            the detector's anchor generator and RoI extractors must have these strides.
        norm_cfg: Config of the norms.
        init_cfg: mmengine's initialisation config.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 256,
        in_stride: int = 16,
        strides: Sequence[int] = (4, 8, 16, 32, 64),
        norm_cfg: dict = DEFAULT_NORM,
        init_cfg: dict | None = None,
    ) -> None:
        super().__init__(init_cfg)
        _check_strides(in_stride, strides)
        self.strides = tuple(strides)
        self.levels = nn.ModuleList(
            _level(in_channels, out_channels, in_stride, stride, norm_cfg)
            for stride in self.strides
            if stride <= 2 * in_stride
        )

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Make the levels, finest first, of the last map ``(B, in_channels, H, W)``.

        Returns:
            One map ``(B, out_channels, H * in_stride / stride, ...)`` per stride.
        """
        levels = [level(maps[-1]) for level in self.levels]
        while len(levels) < len(self.strides):
            levels.append(F.max_pool2d(levels[-1], kernel_size=1, stride=2))
        return tuple(levels)


def _level(
    dim: int, out_dim: int, in_stride: int, stride: int, norm_cfg: dict
) -> nn.Sequential:
    """One level: resampling of the map, then two convolutions."""

    def norm(channels: int) -> nn.Module:
        return MODELS.build(dict(norm_cfg, num_channels=channels))

    layers: list[nn.Module] = []
    if stride > in_stride:
        layers.append(nn.MaxPool2d(2))
    for i in range(round(math.log2(in_stride / stride))):
        if i:
            layers += [norm(dim), nn.GELU()]
        layers.append(nn.ConvTranspose2d(dim, dim // 2, 2, stride=2))
        dim //= 2
    layers += [
        nn.Conv2d(dim, out_dim, 1, bias=False),
        norm(out_dim),
        nn.Conv2d(out_dim, out_dim, 3, padding=1, bias=False),
        norm(out_dim),
    ]
    return nn.Sequential(*layers)


def _check_strides(in_stride: int, strides: Sequence[int]) -> None:
    doubled = strides and all(s == strides[0] * 2**i for i, s in enumerate(strides))
    # Halves and doubles lead from the stride of the map to the first one.
    power = math.log2(in_stride / strides[0]) if doubled and strides[0] > 0 else -2
    wanted = (
        f'strides that double, the first of them at most twice {in_stride} and '
        f'{in_stride} times a power of two'
    )
    reached = power >= -1 and power == round(power)
    check(reached, 'neck.strides', tuple(strides), wanted)
