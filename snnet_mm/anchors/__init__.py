"""WHO is stitched: the anchor contract and the plain ViT."""

from .base import (
    Anchor,
    BackboneMap,
    TokenState,
    check_out,
    check_out_indices,
    check_with_cls,
)
from .plain_vit import PlainViT

__all__ = [
    'Anchor',
    'BackboneMap',
    'PlainViT',
    'TokenState',
    'check_out',
    'check_out_indices',
    'check_with_cls',
]
