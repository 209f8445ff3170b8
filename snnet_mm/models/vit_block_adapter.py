"""The adapter that is a transformer block; here, because the block is an anchor's."""

from __future__ import annotations

from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors import TokenState
from snnet_mm.anchors.vit_block import Block

from .layers.adapters import Adapter


@MODELS.register_module()
class ViTBlockAdapter(Adapter):
    """A transformer block of a plain ViT, behind an affine map if the width changes.

    The paper has it between two ViTs alone.

    Args:
        *args: See :class:`snnet_mm.models.layers.Adapter`.
        head_dim: Width of an attention head.
        **kwargs: See :class:`snnet_mm.models.layers.Adapter`.

    Raises:
        ValueError: If heads do not divide the width; see also :class:`Adapter`.
    """

    def __init__(self, *args, head_dim: int = 64, **kwargs) -> None:
        self.head_dim = head_dim
        super().__init__(*args, **kwargs)
        self.arguments['head_dim'] = head_dim

    def build(self, in_dim: int, out_dim: int, stride: int) -> nn.Module:
        """See :meth:`Adapter.build`.

        Raises:
            ValueError: If heads do not divide the width.
        """
        if self.head_dim < 1 or out_dim % self.head_dim:
            raise ValueError(
                f'head_dim={self.head_dim} of a ViTBlockAdapter to width {out_dim}; '
                'allowed are divisors of the width (config key: '
                'backbone.stitching_layer.head_dim)'
            )
        parts = dict(block=Block(out_dim, out_dim // self.head_dim))
        if in_dim != out_dim:
            parts = dict(widen=nn.Linear(in_dim, out_dim), **parts)
        return nn.ModuleDict(parts)

    def adapt(self, layer: nn.Module, state: TokenState) -> Tensor:
        """See :meth:`Adapter.adapt`."""
        x = state.tokens
        if 'widen' in layer:
            x = layer['widen'](x)
        return layer['block'](x, state.grid)
