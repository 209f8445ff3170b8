"""Training of stitches: samplers, hooks, exact resume and optimizer constructors."""

from .hooks import (
    ExactResumeHook,
    LabelCheckHook,
    StitchCheckpointHook,
    StitchInitHook,
    StitchSamplingHook,
    TrainableParamsHook,
)
from .importance_sampler import ImportanceSampler
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
    'ImportanceSampler',
    'LabelCheckHook',
    'OneCycleMomentum',
    'ResourceConstrainedSampler',
    'SandwichSampler',
    'StitchCheckpointHook',
    'StitchInitHook',
    'StitchSampler',
    'StitchSamplingHook',
    'TrainableParamsHook',
    'UniformSampler',
]
