"""Stitching layers, backbones, the switch of the stitch, wrappers and necks."""

from .backbones import SingleStitch, SNNetv1, SNNetv2, StitchedBackbone
from .layers import LeastSquares, LoRAStitchingLayer, StitchingLayer
from .map_layer_norm import MapLayerNorm
from .necks import NormPerMap, SimpleFeaturePyramid
from .per_stitch_bn import PerStitchBN, recalibrate_bn
from .stitch_switch import find_stitched_backbone, set_stitch, set_stitches, unwrapped
from .wrappers import (
    Distillation,
    DistillationWrapper,
    ModelWrapper,
    SandwichWrapper,
    TimmTeacher,
    model_config,
    unwrapped_config,
)

__all__ = [
    'Distillation',
    'DistillationWrapper',
    'LeastSquares',
    'LoRAStitchingLayer',
    'MapLayerNorm',
    'ModelWrapper',
    'NormPerMap',
    'PerStitchBN',
    'SNNetv1',
    'SNNetv2',
    'SandwichWrapper',
    'SimpleFeaturePyramid',
    'SingleStitch',
    'StitchedBackbone',
    'StitchingLayer',
    'TimmTeacher',
    'find_stitched_backbone',
    'model_config',
    'recalibrate_bn',
    'set_stitch',
    'set_stitches',
    'unwrapped',
    'unwrapped_config',
]
