"""Training of stitches: samplers, hooks, exact resume and optimizer constructors."""

from .fsdp_strategy import StitchFSDPStrategy
from .hooks.exact_resume_hook import ExactResumeHook
from .hooks.label_check_hook import LabelCheckHook
from .hooks.stitch_checkpoint_hook import StitchCheckpointHook
from .hooks.stitch_init_hook import StitchInitHook
from .hooks.stitch_report_hook import StitchReportHook
from .hooks.stitch_sampling_hook import StitchSamplingHook
from .hooks.trainable_params_hook import TrainableParamsHook
from .layer_decay import AnchorLayerDecayConstructor
from .safe_training import check_loop, make_safe
from .samplers import (
    ResourceConstrainedSampler,
    SandwichSampler,
    StitchSampler,
    UniformSampler,
)
from .schedulers import GroupOneCycleLR, OneCycleMomentum

__all__ = [
    'AnchorLayerDecayConstructor',
    'ExactResumeHook',
    'GroupOneCycleLR',
    'LabelCheckHook',
    'OneCycleMomentum',
    'ResourceConstrainedSampler',
    'SandwichSampler',
    'StitchCheckpointHook',
    'StitchFSDPStrategy',
    'StitchInitHook',
    'StitchReportHook',
    'StitchSampler',
    'StitchSamplingHook',
    'TrainableParamsHook',
    'UniformSampler',
    'check_loop',
    'make_safe',
]
