"""Stitched backbones, stitching layers, stitch switching, wrappers and necks."""

from .backbones.chain_anchor import ChainAnchor
from .backbones.elastic_backbone import ElasticBackbone
from .backbones.single_stitch import SingleStitch
from .backbones.snnet import SNNetv1, SNNetv2
from .backbones.stitch_plugin import StitchPlugin
from .backbones.stitched_backbone import StitchedBackbone, build_anchors
from .compiled import compile_stitches, is_compiled
from .layers.least_squares import LeastSquares, fit_in_turn, fit_stitching_layers
from .layers.narrow_branch import NarrowBranch
from .layers.stitch_batch_norm import (
    Statistics,
    StitchBatchNorm,
    batch_norms,
    convert_batch_norms,
    known_stitches,
    set_statistics,
)
from .layers.stitching_layer import (
    LoRAStitchingLayer,
    PrefixStitchingLayer,
    StitchingLayer,
)
from .necks import MapLayerNorm, NormPerMap, SimpleFeaturePyramid
from .out_of_memory import explaining_out_of_memory
from .part_per_anchor import PartPerAnchor
from .stitch_switch import (
    find_stitched_backbone,
    set_input_size,
    set_stitch,
    set_stitches,
    unwrapped,
)
from .wrappers.distillation import Distillation, DistillationWrapper, TimmTeacher
from .wrappers.model_wrapper import ModelWrapper
from .wrappers.sandwich_wrapper import SandwichWrapper
