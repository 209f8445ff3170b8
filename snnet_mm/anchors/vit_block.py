"""The transformer block of a plain ViT, with timm's parameter names."""

from collections import OrderedDict
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .position import DecomposedRelPosBias, Grid, RelativePositionBias
from .windows import Windows

AttentionBias = RelativePositionBias | DecomposedRelPosBias


class DropPath(nn.Module):
    """Stochastic depth: drop the whole residual branch for randomly chosen images."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        keep = 1 - self.rate
        mask = x.new_empty(len(x), *[1] * (x.ndim - 1)).bernoulli_(keep)
        return x * mask / keep


class LayerScale(nn.Module):
    """A learned factor per channel."""

    def __init__(self, dim: int, init_value: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((dim,), float(init_value)))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gamma


class Attention(nn.Module):
    """Multi-head self-attention with ``scaled_dot_product_attention``."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        qkv_bias: bool = True,
        rel_pos_bias: AttentionBias | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim, bias=qkv_bias)
        self.proj = nn.Linear(dim, dim)
        self.rel_pos_bias = rel_pos_bias

    def forward(self, x: Tensor, grid: Grid, mask: Tensor | None = None) -> Tensor:
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        bias = mask
        if self.rel_pos_bias is not None:
            bias = self.rel_pos_bias(grid, q).to(q.dtype)
        x = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
        return self.proj(x.transpose(1, 2).flatten(2))


class AdaptedMLP(nn.Sequential):
    """A frozen feed-forward branch ``fc1, act, fc2`` with a trained bottleneck.

    The bottleneck, initially a no-op, reads the branch's output (Houlsby et al., GELU)
    or, if ``parallel``, its input (AdaptFormer, ReLU, scaled by 0.1).
    """

    def __init__(self, mlp: nn.Sequential, width: int, parallel: bool = False) -> None:
        super().__init__(OrderedDict(mlp.named_children()))
        self.parallel, dim = parallel, mlp.fc1.in_features
        down, act = nn.Linear(dim, width), nn.ReLU() if parallel else nn.GELU()
        up = nn.Linear(width, dim)
        nn.init.zeros_(up.weight)
        nn.init.zeros_(up.bias)
        self.adapter = nn.Sequential(OrderedDict(down=down, act=act, up=up))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc2(self.act(self.fc1(x)))
        return y + (0.1 * self.adapter(x) if self.parallel else self.adapter(y))


class Block(nn.Module):
    """A pre-norm transformer block; for its arguments see :class:`PlainViT`.

    ``mask``, bool ``(B, 1, L, L)``, is True where a token (row) attends to another.
    Only global attention without relative positions uses it.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        drop_path: float = 0,
        rel_pos_bias: AttentionBias | None = None,
        window_size: int = 0,
        mlp_ratio: float = 4,
        qkv_bias: bool = True,
        layer_scale_init: float | None = None,
        norm_eps: float = 1e-6,
        mlp_shortcut: bool = False,
        adapter: Mapping | None = None,
    ) -> None:
        super().__init__()
        self.mlp_shortcut = mlp_shortcut
        self.windows = Windows((window_size, window_size)) if window_size else None
        scaled, init = layer_scale_init is not None, layer_scale_init
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps)
        self.attn = Attention(dim, num_heads, qkv_bias, rel_pos_bias)
        self.ls1 = LayerScale(dim, init) if scaled else nn.Identity()
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps)
        hidden = int(dim * mlp_ratio)
        fc1, fc2 = nn.Linear(dim, hidden), nn.Linear(hidden, dim)
        self.mlp = nn.Sequential(OrderedDict(fc1=fc1, act=nn.GELU(), fc2=fc2))
        if adapter is not None:
            self.mlp = AdaptedMLP(self.mlp, **adapter)
        self.ls2 = LayerScale(dim, init) if scaled else nn.Identity()
        self.drop_path = DropPath(drop_path)

    def forward(self, x: Tensor, grid: Grid, mask: Tensor | None = None) -> Tensor:
        return self.feed(self.attend(x, grid, mask))

    def attend(self, x: Tensor, grid: Grid, mask: Tensor | None = None) -> Tensor:
        """Run the attention branch, ``x + attention(x)``."""
        normed, windows = self.norm1(x), self.windows
        if windows is not None:
            branch = self.attn(windows.split(normed, grid), windows.size)
            branch = windows.merge(branch, grid)
        else:
            branch = self.attn(normed, grid, mask)
        return x + self.drop_path(self.ls1(branch))

    def feed(self, x: Tensor) -> Tensor:
        """Run the feed-forward branch, ``x + mlp(x)``."""
        normed = self.norm2(x)
        branch = self.mlp(normed)
        if self.mlp_shortcut:
            branch = branch + normed
        return x + self.drop_path(self.ls2(branch))
