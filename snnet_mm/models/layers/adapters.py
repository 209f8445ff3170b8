"""Adapters: stitching layers between networks that differ in more than width.

"Bridging Large Gaps in Neural Network Representations with Model Stitching", section 2.
"""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors.token_state import TokenState

RESIZES = ('bilinear', 'strided', 'none')


class Hop(NamedTuple):
    """What one adapter of a chain leads to.

    Args:
        dim: Width behind it.
        stride: Pixels between two tokens behind it.
    """

    dim: int
    stride: int


class Adapter(nn.Module, metaclass=ABCMeta):
    """A chain of adapters, one per stage crossed, with batch norms around each.

    Before each adapter the patches are resampled to the grid that it leads to.

    Where both networks have the same prefix tokens, and the adapter takes tokens one by
    one or as a sequence, prefix tokens go through it as the patches do. Otherwise the
    patches make up a map: a cls token that comes in is concatenated to every patch,
    which doubles the width, and one that goes out is the mean of the patches (section
    3.2 of the paper).

    Args:
        in_dim: Width of the network that is left.
        in_stride: Pixels between two of its tokens.
        hops: Width and stride behind each adapter.
        prefix: Prefix tokens of the network that is left, and of the one entered.
        resize: ``'bilinear'`` interpolation before each adapter; ``'strided'`` for
            convolutions that also reduce the grid, the paper's integrated
            down-sampling; ``'none'`` leaves the grid as it is.

    Raises:
        ValueError: If the adapter cannot bridge these layouts, for an unknown resize or
            one that it cannot do, or without hops.
    """

    strides = False  # whether it can reduce the grid by itself
    spatial = False  # whether it needs a map, without prefix tokens

    def __init__(
        self,
        in_dim: int,
        in_stride: int,
        hops: Sequence[Sequence[int]],
        prefix: Sequence[int] = (0, 0),
        resize: str = 'bilinear',
    ) -> None:
        super().__init__()
        hops = tuple(Hop(*hop) for hop in hops)
        self.arguments = dict(
            in_dim=in_dim,
            in_stride=in_stride,
            hops=[tuple(hop) for hop in hops],
            prefix=tuple(prefix),
            resize=resize,
        )
        self.in_stride, self.hops, self.resize = in_stride, hops, resize
        self.num_prefix, self.out_prefix = prefix
        self.folds = self.spatial or self.num_prefix != self.out_prefix
        self._check()
        width = in_dim * (2 if self.folds and self.num_prefix else 1)
        strides = (in_stride, *(hop.stride for hop in hops))
        self.chain = nn.ModuleList()
        for hop, before in zip(hops, strides[:-1], strict=True):
            factor = hop.stride // before if resize == 'strided' else 1
            parts = dict(
                norm_in=TokenNorm(width),
                adapt=self.build(width, hop.dim, factor),
                norm_out=TokenNorm(hop.dim),
            )
            self.chain.append(nn.ModuleDict(parts))
            width = hop.dim

    @abstractmethod
    def build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        """One adapter: on tokens ``(B, L, C)``, or on a map if it is spatial."""

    def adapt(self, layer: nn.Module, state: TokenState) -> Tensor:
        """Run one adapter: tokens or, if it is spatial, a map behind it."""
        if not self.spatial:
            return layer(state.tokens)
        return layer(state.tokens.transpose(1, 2).unflatten(2, state.grid))

    def config(self) -> dict:
        """What :class:`SingleStitch` builds it from: a whole config."""
        return dict(type=type(self).__name__, **self.arguments)

    def cross(self, state: TokenState) -> TokenState:
        """The state in the other network, on the grid that it expects."""
        return self(state)

    def forward(self, state: TokenState) -> TokenState:
        """See :meth:`cross`."""
        grid, stride = state.grid, self.in_stride
        if self.folds and self.num_prefix:
            cls, patches = state.tokens[:, :1], state.tokens[:, 1:]
            tokens = torch.cat([patches, cls.expand_as(patches)], dim=2)
            state = TokenState(tokens, grid)
        for parts, hop in zip(self.chain, self.hops, strict=True):
            if self.resize == 'bilinear':
                # From the first grid, so that what was rounded up does not add up.
                wanted = tuple(-(-n * stride // hop.stride) for n in grid)
                state = self._resized(state, wanted)
            state = state._replace(tokens=parts['norm_in'](state.tokens))
            x = self.adapt(parts['adapt'], state)
            if x.ndim == 4:
                state = TokenState(x.flatten(2).transpose(1, 2), tuple(x.shape[2:]))
            else:
                state = state._replace(tokens=x)
            state = state._replace(tokens=parts['norm_out'](state.tokens))
        if self.folds and self.out_prefix:
            mean = state.tokens.mean(1, keepdim=True)
            state = state._replace(tokens=torch.cat([mean, state.tokens], dim=1))
        return state

    def _resized(self, state: TokenState, grid: tuple[int, int]) -> TokenState:
        """The state on another grid, prefix tokens as they are."""
        if state.grid == grid:
            return state
        num_prefix = 0 if self.folds else self.num_prefix
        prefix, patches = state.tokens[:, :num_prefix], state.tokens[:, num_prefix:]
        x = patches.transpose(1, 2).unflatten(2, state.grid)
        x = F.interpolate(x, grid, mode='bilinear', align_corners=False)
        tokens = x.flatten(2).transpose(1, 2)
        if num_prefix:
            tokens = torch.cat([prefix, tokens], dim=1)
        return TokenState(tokens, grid)

    def _check(self) -> None:
        kind, prefix = type(self).__name__, (self.num_prefix, self.out_prefix)
        if self.folds and max(prefix) > 1:
            raise ValueError(
                f'{kind} from {prefix[0]} to {prefix[1]} prefix tokens; it can bridge '
                'none and one cls token, and registers not at all (config keys: '
                'backbone.stitching_layer.type, backbone.anchors)'
            )
        allowed = [r for r in RESIZES if r != 'strided' or self.strides]
        if self.resize not in allowed:
            raise ValueError(
                f'resize={self.resize!r} of {kind}; allowed are {allowed} (config key: '
                'backbone.stitching_layer.resize)'
            )
        if not self.hops or min(min(hop) for hop in self.hops) < 1:
            raise ValueError(
                f'hops={self.hops} of {kind}; wanted are one or more widths and '
                'strides of 1 or more (config key: hops)'
            )
        strides = (self.in_stride, *(hop.stride for hop in self.hops))
        steps = list(zip(strides, strides[1:], strict=False))
        if self.resize == 'strided' and any(b % a for a, b in steps):
            raise ValueError(
                f"resize='strided' of {kind} along strides {strides}; allowed are "
                'strides that are whole multiples of those before them (config key: '
                'backbone.stitching_layer.resize)'
            )


@MODELS.register_module()
class LinearAdapter(Adapter):
    """An affine map of every token, what nearly all prior work stitches with."""

    def build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        """See :meth:`Adapter.build`."""
        return nn.Linear(in_dim, out_dim)


@MODELS.register_module()
class LinearReLUAdapter(Adapter):
    """An affine map of every token and a ReLU."""

    def build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        """See :meth:`Adapter.build`."""
        return nn.Sequential(nn.Linear(in_dim, out_dim), nn.ReLU())


@MODELS.register_module()
class Conv3x3Adapter(Adapter):
    """A 3x3 convolution and a ReLU."""

    strides = spatial = True

    def build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        """See :meth:`Adapter.build`."""
        return nn.Sequential(
            nn.Conv2d(in_dim, out_dim, 3, stride, padding=1), nn.ReLU()
        )


@MODELS.register_module()
class BottleneckAdapter(Adapter):
    """ResNet's bottleneck block, a quarter of the width inside."""

    strides = spatial = True

    def build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        """See :meth:`Adapter.build`.

        Raises:
            ValueError: If a quarter of the width is nothing.
        """
        if out_dim < 4:
            raise ValueError(
                f'BottleneckAdapter to width {out_dim}; allowed is 4 or more (config '
                'key: backbone.stitching_layer.type)'
            )
        return Bottleneck(in_dim, out_dim, stride)


class Bottleneck(nn.Module):
    """A bottleneck block (ResNet), whose stride is in the 3x3 convolution.

    Args:
        in_dim: Width of the map.
        out_dim: Width behind it.
        stride: By which the grid shrinks.
    """

    def __init__(self, in_dim: int, out_dim: int, stride: int = 1) -> None:
        super().__init__()
        planes = out_dim // 4
        self.branch = nn.Sequential(
            *_conv_bn(in_dim, planes, 1),
            nn.ReLU(),
            *_conv_bn(planes, planes, 3, stride),
            nn.ReLU(),
            *_conv_bn(planes, out_dim, 1),
        )
        same = in_dim == out_dim and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(*_conv_bn(in_dim, out_dim, 1, stride))
        )

    def forward(self, x: Tensor) -> Tensor:
        """The map ``(B, out_dim, h, w)`` behind the block."""
        return F.relu(self.branch(x) + self.shortcut(x))


class TokenNorm(nn.BatchNorm1d):
    """A batch norm of tokens ``(B, L, C)``: that of the map which they are."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalise over images and tokens."""
        return super().forward(x.transpose(1, 2)).transpose(1, 2)


def _conv_bn(
    in_dim: int, out_dim: int, size: int, stride: int = 1
) -> tuple[nn.Module, nn.Module]:
    conv = nn.Conv2d(in_dim, out_dim, size, stride, padding=size // 2, bias=False)
    return conv, nn.BatchNorm2d(out_dim)
