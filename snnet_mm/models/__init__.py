"""Registered models that need no mm package, and the switch of their stitch."""

from .backbones import (
    BridgedBackbone,
    SingleStitch,
    SNNetv1,
    SNNetv2,
    StitchedBackbone,
)
from .map_layer_norm import MapLayerNorm
from .necks import MapNorms, SimpleFeaturePyramid
from .per_stitch_bn import PerStitchBN, recalibrate_bn
from .stitch_switch import find_stitched_backbone, set_stitch, set_stitches
from .vit_block_adapter import ViTBlockAdapter
from .wrappers import (
    DistillationWrapper,
    SandwichWrapper,
    TimmTeacher,
    model_config,
    unwrapped_config,
)

__all__ = [
    'BridgedBackbone',
    'DistillationWrapper',
    'MapLayerNorm',
    'MapNorms',
    'PerStitchBN',
    'SNNetv1',
    'SNNetv2',
    'SandwichWrapper',
    'SimpleFeaturePyramid',
    'SingleStitch',
    'StitchedBackbone',
    'TimmTeacher',
    'ViTBlockAdapter',
    'find_stitched_backbone',
    'model_config',
    'recalibrate_bn',
    'set_stitch',
    'set_stitches',
    'unwrapped_config',
]
