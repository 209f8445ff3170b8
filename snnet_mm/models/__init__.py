"""Stitching layers, backbones, the switch of the stitch, wrappers and necks."""

from .backbones.single_stitch import SingleStitch
from .backbones.snnet_v1 import SNNetv1
from .backbones.snnet_v2 import SNNetv2
from .backbones.stitched_backbone import StitchedBackbone
from .layers.least_squares import LeastSquares
from .layers.stitching_layer import LoRAStitchingLayer, StitchingLayer
from .necks.norm_per_map import MapLayerNorm, NormPerMap
from .necks.simple_feature_pyramid import SimpleFeaturePyramid
from .per_stitch_bn import PerStitchBN, recalibrate_bn
from .stitch_switch import find_stitched_backbone, set_stitch, set_stitches, unwrapped
from .wrappers.distillation import Distillation
from .wrappers.distillation_wrapper import DistillationWrapper, TimmTeacher
from .wrappers.model_wrapper import ModelWrapper, model_config, unwrapped_config
from .wrappers.sandwich_wrapper import SandwichWrapper

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
