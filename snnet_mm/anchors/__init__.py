"""WHO is stitched: the anchor contract and the plain ViT."""

from .base import Anchor, TokenState, check_out_indices
from .plain_vit import PlainViT

__all__ = ['Anchor', 'PlainViT', 'TokenState', 'check_out_indices']
