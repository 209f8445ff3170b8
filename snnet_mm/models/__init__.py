"""Registered models that need no mm package, and the switch of their stitch."""

from .backbones import SingleStitch, SNNetv1, SNNetv2, StitchedBackbone
from .stitch_switch import find_stitched_backbone, set_stitch

__all__ = [
    'SNNetv1',
    'SNNetv2',
    'SingleStitch',
    'StitchedBackbone',
    'find_stitched_backbone',
    'set_stitch',
]
