"""Adapters: stitching layers across any gap (section 2 of "Bridging Large Gaps")."""

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
import torch.nn.functional as F
from mmengine.registry import MODELS
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.anchors import TokenState
from snnet_mm.anchors.vit_block import Block
from snnet_mm.utils import check

RESIZES = ('bilinear', 'strided', 'none')
LAYOUTS = ('text', 'code')


class Adapter(nn.Module, metaclass=ABCMeta):
    """A chain of adapters, one per stage crossed.

    If both networks have the same prefix tokens and the adapter needs no map, prefix
    tokens are mapped like patches. Otherwise an incoming cls token is concatenated to
    every patch, which doubles the width, and an outgoing cls token is the mean of the
    patches (section 3.2 of the paper).

    Args:
        hops: Width and stride after each adapter.
        prefix: Number of prefix tokens of the network left and of the network entered.
        resize: How grids change: ``'bilinear'`` interpolation before each adapter,
            ``'strided'`` convolutions, the paper's integrated down-sampling, which
            interpolates where a grid grows, or ``'none'``.
        layout: ``'text'`` follows the paper: batch norms before and after each adapter,
            ReLU before the second norm. ``'code'`` follows the authors' code: LeakyReLU
            after the second norm, layer norms if prefix tokens are mapped like patches,
            no norms around a block.
    """

    strides = False  # whether it can reduce the grid itself
    spatial = False  # whether it needs a map, without prefix tokens
    nonlinear = False  # whether an activation follows the affine map
    is_block = False  # whether it has norms of its own

    def __init__(
        self,
        in_dim: int,
        in_stride: int,
        hops: Sequence[Sequence[int]],
        prefix: Sequence[int] = (0, 0),
        resize: str = 'bilinear',
        layout: str = 'text',
    ) -> None:
        super().__init__()
        self.in_dim, self.in_stride = in_dim, in_stride
        self.resize, self.layout = resize, layout
        self.hops = tuple(tuple(hop) for hop in hops)
        self.num_prefix, self.out_prefix = prefix
        self.folds = self.spatial or self.num_prefix != self.out_prefix
        self._check([in_stride, *(stride for _, stride in self.hops)])
        width, before = in_dim * (2 if self.folds and self.num_prefix else 1), in_stride
        self.chain = nn.ModuleList()
        for dim, stride in self.hops:
            factor = max(stride // before, 1) if resize == 'strided' else 1
            adapt = self._build(width, dim, factor)
            self.chain.append(self._with_norms(adapt, width, dim))
            width, before = dim, stride

    def _with_norms(self, adapt: nn.Module, in_dim: int, out_dim: int) -> nn.ModuleDict:
        text = self.layout == 'text'
        if self.is_block and not text:
            return nn.ModuleDict(dict(adapt=adapt))
        tokens = not text and not self.folds and self.num_prefix > 0
        norm = nn.LayerNorm if tokens else nn.BatchNorm1d
        if isinstance(adapt, nn.Linear) and not tokens:
            init_fan_out(adapt)
        parts = [
            ('norm_in', norm(in_dim)),
            ('adapt', adapt),
            ('norm_out', norm(out_dim)),
        ]
        if self.nonlinear and text:
            parts.insert(2, ('act', nn.ReLU()))
        elif self.nonlinear:
            parts.append(('act', nn.LeakyReLU(0.1)))
        return nn.ModuleDict(parts)

    @abstractmethod
    def _build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        """Build one adapter for tokens ``(B, L, C)`` or, if ``spatial``, for a map."""

    def _adapt(self, layer: nn.Module, state: TokenState) -> Tensor:
        return layer(state.as_map() if self.spatial else state.tokens)

    def config(self) -> dict:
        """Return the config that builds an adapter of the same shape."""
        kind, prefix = type(self).__name__, (self.num_prefix, self.out_prefix)
        source = dict(in_dim=self.in_dim, in_stride=self.in_stride, prefix=prefix)
        how = dict(resize=self.resize, layout=self.layout)
        return dict(type=kind, hops=list(self.hops), **how, **source)

    def merged(self) -> 'Adapter':
        """Return the adapter itself, the layer of an exported stitch."""
        return self

    def map_state(self, state: TokenState) -> TokenState:
        """Return the state from which the target anchor resumes."""
        return self(state)

    def forward(self, state: TokenState) -> TokenState:
        """Map a state to the width and grid of the other network."""
        grid = state.grid
        if self.folds and self.num_prefix:
            cls = state.prefix.expand_as(state.patches)
            tokens = torch.cat([state.patches, cls], dim=2)
            state = TokenState(tokens, grid)
        before = self.in_stride
        for parts, (_, stride) in zip(self.chain, self.hops, strict=True):
            grows = self.resize == 'strided' and stride < before
            before = stride
            if self.resize == 'bilinear' or grows:
                # Derived from the first grid, so that rounding does not accumulate.
                wanted = tuple(-(-n * self.in_stride // stride) for n in grid)
                state = self._resized(state, wanted)
            for name, part in parts.items():
                if name == 'adapt':
                    x = self._adapt(part, state)
                elif isinstance(part, _BatchNorm):  # over images and tokens
                    x = part(state.tokens.transpose(1, 2)).transpose(1, 2)
                else:
                    x = part(state.tokens)
                state = (
                    TokenState.of_map(x) if x.ndim == 4 else state._replace(tokens=x)
                )
        if self.folds and self.out_prefix:
            mean = state.tokens.mean(1, keepdim=True)
            state = state._replace(tokens=torch.cat([mean, state.tokens], dim=1))
        return state

    def _resized(self, state: TokenState, grid: tuple[int, int]) -> TokenState:
        if state.grid == grid:
            return state
        x = F.interpolate(state.as_map(), grid, mode='bilinear')
        tokens = torch.cat([state.prefix, TokenState.of_map(x).tokens], dim=1)
        return TokenState(tokens, grid)

    def _check(self, strides: Sequence[int]) -> None:
        key = 'backbone.stitching_layer'
        prefix = f'{self.num_prefix} to {self.out_prefix} prefix tokens'
        fits = not self.folds or max(self.num_prefix, self.out_prefix) < 2
        expected = f'at most a cls token, and no registers, for a {type(self).__name__}'
        check(fits, f'{key}.type', prefix, expected)
        resizes = [r for r in RESIZES if r != 'strided' or self.strides]
        check(self.resize in resizes, f'{key}.resize', self.resize, resizes)
        check(self.layout in LAYOUTS, f'{key}.layout', self.layout, LAYOUTS)
        uneven = any(b > a and b % a for a, b in pairwise(strides))
        whole = self.resize != 'strided' or not uneven
        expected = f'strides that are multiples of the previous one, not {strides}'
        check(whole, f'{key}.resize', self.resize, expected)


@MODELS.register_module()
class LinearAdapter(Adapter):
    """An affine map of every token, as in nearly all prior work on stitching."""

    def _build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        return nn.Linear(in_dim, out_dim)


@MODELS.register_module()
class LinearReLUAdapter(LinearAdapter):
    """An affine map of every token and a ReLU."""

    nonlinear = True


@MODELS.register_module()
class Conv3x3Adapter(Adapter):
    """A 3x3 convolution and a ReLU."""

    strides = spatial = nonlinear = True

    def _build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        return init_fan_out(nn.Conv2d(in_dim, out_dim, 3, stride, padding=1))


@MODELS.register_module()
class BottleneckAdapter(Adapter):
    """ResNet's bottleneck block with a quarter of the width inside."""

    strides = spatial = is_block = True

    def _build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        check(out_dim > 3, 'backbone.anchors', out_dim, 'a width of 4 or more')
        return Bottleneck(in_dim, out_dim, stride)


@MODELS.register_module()
class ViTBlockAdapter(Adapter):
    """A transformer block of a plain ViT, after an affine map if the width changes.

    The paper uses it only between two ViTs. Attention heads have width ``head_dim``.
    """

    is_block = True

    def __init__(self, *args, head_dim: int = 64, **kwargs) -> None:
        self.head_dim = head_dim
        super().__init__(*args, **kwargs)

    def _build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        divides = self.head_dim > 0 and out_dim % self.head_dim == 0
        key, expected = 'backbone.stitching_layer.head_dim', 'a divisor of the width'
        check(divides, key, self.head_dim, f'{expected} {out_dim}')
        parts = dict(widen=nn.Linear(in_dim, out_dim)) if in_dim != out_dim else {}
        parts['block'] = Block(out_dim, out_dim // self.head_dim)
        return nn.ModuleDict(parts)

    def _adapt(self, layer: nn.Module, state: TokenState) -> Tensor:
        x = layer['widen'](state.tokens) if 'widen' in layer else state.tokens
        return layer['block'](x, state.grid)

    def config(self) -> dict:
        return super().config() | dict(head_dim=self.head_dim)


class Bottleneck(nn.Module):
    """A ResNet bottleneck block with the stride in the 3x3 convolution.

    The last norm of the branch has zero initial weights, which leaves the shortcut.
    """

    def __init__(self, in_dim: int, out_dim: int, stride: int = 1) -> None:
        super().__init__()
        planes = out_dim // 4
        first = *_conv_bn(in_dim, planes, 1), nn.ReLU()
        second = *_conv_bn(planes, planes, 3, stride), nn.ReLU()
        self.branch = nn.Sequential(*first, *second, *_conv_bn(planes, out_dim, 1))
        nn.init.zeros_(self.branch[-1].weight)
        self.shortcut = nn.Identity()
        if in_dim != out_dim or stride > 1:
            self.shortcut = nn.Sequential(*_conv_bn(in_dim, out_dim, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.branch(x) + self.shortcut(x))


def widen_by_stages(
    source: tuple[int, int], target: tuple[int, int], num: int
) -> tuple[tuple[int, int], ...]:
    """Return ``(width, stride)`` after each of ``num`` adapters, source to target.

    Both double at each step up to the target's, as in the authors' code. The width
    halves if the target is narrower.
    """
    (width, stride), (last_width, last_stride) = source, target
    hops = []
    for factor in (2**i for i in range(1, num)):
        wider = min(width * factor, last_width)
        dim = wider if last_width >= width else max(width // factor, last_width)
        hops.append((dim, min(stride * factor, last_stride)))
    return (*hops, target)


def init_fan_out(layer: nn.Linear | nn.Conv2d) -> nn.Module:
    """Initialise weights by Kaiming's fan-out scheme and return the layer."""
    nn.init.kaiming_normal_(layer.weight, mode='fan_out', nonlinearity='relu')
    return layer


def _conv_bn(in_dim: int, out_dim: int, size: int, stride: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(in_dim, out_dim, size, stride, padding=size // 2, bias=False)
    return [init_fan_out(conv), nn.BatchNorm2d(out_dim)]
