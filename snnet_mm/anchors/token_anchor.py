"""What all plain ViTs have in common as anchors, whatever is in their blocks."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint, noop_context_fn

from .base import Anchor
from .token_state import TokenState


class TokenAnchor(Anchor):
    """An anchor of equal blocks on prefix tokens and a grid of patches.

    What derives from it sets these attributes.

    Args:
        patch_size: Pixels of a patch's side.
        grid: Rows and columns of the patches that it is built for.
        num_prefix: Tokens in front of the patches: cls token and registers.
        frozen_stages: See :class:`PlainViT`.
        with_cp: See :class:`PlainViT`.
    """

    patch_size: int
    grid: tuple[int, int]
    num_prefix: int
    with_cp = False
    # Contexts of a block's first run and of the second one, for its gradient.
    checkpoint_context = staticmethod(noop_context_fn)

    @abstractmethod
    def run_layers(self, i: int, tokens: Tensor, grid: tuple[int, int]) -> Tensor:
        """Tokens ``(B, L, C)`` after the layers of block i, without a final norm."""

    @abstractmethod
    def run_norm(self, tokens: Tensor) -> Tensor:
        """Tokens ``(B, L, C)`` after the final norm, if the anchor has one."""

    @property
    def input_size(self) -> tuple[int, int]:
        """Height and width of the images that the anchor is built for."""
        return self.grid[0] * self.patch_size, self.grid[1] * self.patch_size

    def run_block(self, state: TokenState, i: int) -> TokenState:
        """See :meth:`Anchor.run_block`."""
        args = i, state.tokens, state.grid
        if self.with_cp and torch.is_grad_enabled():
            contexts = self.checkpoint_context
            x = checkpoint(
                self.run_layers, *args, use_reentrant=False, context_fn=contexts
            )
        else:
            x = self.run_layers(*args)
        if i == self.depth - 1:
            x = self.run_norm(x)
        return state._replace(tokens=x)

    def to_feature_map(self, state: TokenState) -> Tensor:
        """See :meth:`Anchor.to_feature_map`."""
        patches = state.tokens[:, self.num_prefix :]
        return patches.transpose(1, 2).unflatten(2, state.grid).contiguous()
