"""Stitching layers: maps from one anchor's activations to another's."""

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import LowRankUpdate, TokenState
from snnet_mm.utils import check


@MODELS.register_module()
class StitchingLayer(nn.Linear):
    """An affine map of every token (SN-Net's 1x1 convolution), fully trained."""

    num_prefix = 0  # prefix tokens with a separate map

    def __init__(self, in_dim: int, out_dim: int) -> None:
        super().__init__(in_dim, out_dim)

    def map_state(self, state: TokenState) -> TokenState:
        """Map all tokens of a state to the other anchor's width, on the same grid."""
        return state.mapped(self)

    def pair(self, before: TokenState, after: TokenState) -> tuple[Tensor, Tensor]:
        """Return the activations that the map is fitted from and to."""
        return before.fitted, after.fitted

    def config(self) -> dict:
        """Return the config of the layer: its type, its widths and other arguments."""
        widths = dict(in_dim=self.in_features, out_dim=self.out_features)
        return dict(type=type(self).__name__, **widths)

    @torch.no_grad()
    def set_map(self, weight: Tensor, bias: Tensor) -> None:
        """Set weight ``(out_dim, in_dim)`` and bias to a least-squares solution."""
        self.weight.copy_(weight)
        self.bias.copy_(bias)

    def merged(self) -> 'StitchingLayer':
        """Return the layer of an exported stitch, with equal outputs."""
        return self


@MODELS.register_module()
class PrefixStitchingLayer(StitchingLayer):
    """Separate affine maps of patches and of the ``num_prefix`` prefix tokens."""

    def __init__(self, in_dim: int, out_dim: int, num_prefix: int) -> None:
        super().__init__(in_dim, out_dim)
        self.num_prefix, self.prefix = num_prefix, nn.Linear(in_dim, out_dim)

    def map_state(self, state: TokenState) -> TokenState:
        tokens = torch.cat([self.prefix(state.prefix), self(state.patches)], dim=1)
        return state._replace(tokens=tokens)

    @torch.no_grad()
    def set_map(
        self,
        weight: Tensor,
        bias: Tensor,
        more: Tensor | float = 0,
        offset: Tensor | float = 0,
    ) -> None:
        """Set both maps; that of prefix tokens adds ``more`` and ``offset``."""
        super().set_map(weight, bias)
        self.prefix.weight.copy_(weight + more)
        self.prefix.bias.copy_(bias + offset)

    def config(self) -> dict:
        return super().config() | dict(num_prefix=self.num_prefix)


@MODELS.register_module()
class LoRAStitchingLayer(LowRankUpdate, StitchingLayer):
    """A frozen affine map with a trained low-rank update (SN-Netv2, section 4.3).

    It starts as its least-squares map. Equation 3 of the paper swaps the letters A and
    B of :class:`LowRankUpdate`.

    Args:
        in_dim, out_dim: Widths of the source and target anchors.
        rank: Rank of the update, or a float share of the smaller width (ESTA: 0.25).
        alpha: The update is scaled by ``alpha / rank``; None means ``rank`` (ESTA).
            Default: 1.
        train_bias: Whether to train the bias, as SN-Netv2's code does. Default: True.
    """

    plain = StitchingLayer

    def __init__(
        self,
        in_dim: int,
        out_dim: int,
        rank: int | float,
        alpha: float | None = 1,
        train_bias: bool = True,
    ) -> None:
        super().__init__(in_dim, out_dim)
        if isinstance(rank, float):
            width = min(in_dim, out_dim)
            whole = 0 < rank <= 1 and (rank * width).is_integer()
            expected = f'a fraction up to 1 that gives a whole rank at width {width}'
            check(whole, 'stitching_layer.rank', rank, expected)
            rank = int(rank * width)
        self.add_update(rank, rank if alpha is None else alpha, 'stitching_layer.rank')
        self.bias.requires_grad_(train_bias)
