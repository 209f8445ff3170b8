"""Common parts of all plain ViTs, whatever is in their blocks."""

from abc import abstractmethod

import torch.nn.functional as F
from torch import Tensor

from snnet_mm.utils import check, is_number

from .base import Anchor, TokenState
from .position import Grid, grid_of


class TokenAnchor(Anchor):
    """An anchor of equal blocks on prefix tokens and a grid of patches.

    What derives from it has ``grid``, the rows and columns that it is built for.
    """

    grid: Grid
    lora_part, lora_targets = 'attn', ('qkv', 'proj')

    def __init__(
        self,
        dim: int,
        depth: int,
        patch_size: int,
        num_prefix: int,
        has_cls: bool,
        drop_path_rate: float = 0,
        **kwargs,
    ) -> None:
        dims, strides = [dim] * depth, [patch_size] * depth
        super().__init__(dims, strides, num_prefix, has_cls, **kwargs)
        right = is_number(drop_path_rate) and 0 <= drop_path_rate < 1
        check(right, 'drop_path_rate', drop_path_rate, 'from 0 to below 1')
        self.patch_size = patch_size

    @abstractmethod
    def embed_patches(self, images: Tensor, grid: Grid) -> Tensor:
        """Return tokens ``(B, L, C)`` of images that whole patches cover."""

    @abstractmethod
    def run_layers(self, i: int, tokens: Tensor, grid: Grid) -> Tensor:
        """Return tokens ``(B, L, C)`` after block i, without final norm."""

    @property
    def input_size(self) -> tuple[int, int]:
        return self.grid[0] * self.patch_size, self.grid[1] * self.patch_size

    def embed(self, images: Tensor) -> TokenState:
        height, width = images.shape[-2:]
        pad_h, pad_w = -height % self.patch_size, -width % self.patch_size
        if pad_h or pad_w:
            images = F.pad(images, (0, pad_w, 0, pad_h))
        grid = grid_of((height, width), self.patch_size)
        return TokenState(self.embed_patches(images, grid), grid)

    def run_block(self, state: TokenState, i: int) -> TokenState:
        x = self.maybe_checkpoint(self.run_layers, i, state.tokens, state.grid)
        if i == self.depth - 1:
            x = self.trunk.norm(x)
        return state._replace(tokens=x)

    def to_feature_map(self, state: TokenState) -> Tensor:
        patches = state.tokens[:, self.num_prefix :]
        return patches.transpose(1, 2).unflatten(2, state.grid).contiguous()
