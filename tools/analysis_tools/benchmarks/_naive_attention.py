"""The attention of the authors' code: a matrix of all weights, a bias gathered anew."""

import copy

from torch import Tensor, nn

from snnet_mm.anchors import PlainViT
from snnet_mm.anchors.position import relative_position_index, resize_bias_table
from snnet_mm.anchors.vit_block import Attention


def with_naive_attention(anchor: PlainViT) -> PlainViT:
    """A copy with the same weights."""
    naive = copy.deepcopy(anchor)
    for block in naive.blocks:
        block.attn = NaiveAttention(block.attn)
    return naive


class NaiveAttention(nn.Module):
    """Attention step by step, with a bias that is gathered whenever it is needed."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.num_heads = attention.num_heads
        self.qkv, self.proj = attention.qkv, attention.proj
        self.bias = attention.rel_pos_bias

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        """Attend among all tokens ``(B, L, C)``."""
        qkv = self.qkv(x).unflatten(-1, (3, self.num_heads, -1))
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        index = relative_position_index(grid, self.bias.num_prefix).to(x.device)
        bias = resize_bias_table(self.bias.table, self.bias.grid, grid)[index.flatten()]
        bias = bias.view(*index.shape, -1).permute(2, 0, 1).contiguous()
        x = (scores + bias).softmax(-1) @ v
        return self.proj(x.transpose(1, 2).flatten(2))
