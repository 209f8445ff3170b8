"""WHO is stitched: the anchor contract, the plain ViT and families of timm."""

from .base import (
    Anchor,
    BackboneMap,
    TokenState,
    check_out,
    check_out_indices,
    check_with_cls,
)
from .plain_vit import PlainViT
from .timm_stage_anchor import TimmStageAnchor

__all__ = [
    'Anchor',
    'BackboneMap',
    'PlainViT',
    'TimmStageAnchor',
    'TokenState',
    'check_out',
    'check_out_indices',
    'check_with_cls',
]
