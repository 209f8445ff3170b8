"""Training of stitches: samplers, hooks, exact resume and optimizer constructors."""

from .hooks import (
    ExactResumeHook,
    LabelCheckHook,
    StitchCheckpointHook,
    StitchInitHook,
    StitchReportHook,
    StitchSamplingHook,
    TrainableParamsHook,
)
from .layer_decay import AnchorLayerDecayConstructor
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
    'StitchInitHook',
    'StitchReportHook',
    'StitchSampler',
    'StitchSamplingHook',
    'TrainableParamsHook',
    'UniformSampler',
]
