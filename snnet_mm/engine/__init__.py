"""Training and evaluation of stitches: samplers, hooks and loops."""

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
from .loops import StitchTestLoop, StitchValLoop
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
    'StitchTestLoop',
    'StitchValLoop',
    'TrainableParamsHook',
    'UniformSampler',
]
