"""Training and evaluation of stitches: samplers, hooks and loops."""

from .hooks import (
    ExactResumeHook,
    LabelCheckHook,
    StitchCheckpointHook,
    StitchInitHook,
    StitchSamplingHook,
)
from .loops import StitchTestLoop, StitchValLoop
from .samplers import ResourceConstrainedSampler, StitchSampler, UniformSampler

__all__ = [
    'ExactResumeHook',
    'LabelCheckHook',
    'ResourceConstrainedSampler',
    'StitchCheckpointHook',
    'StitchInitHook',
    'StitchSampler',
    'StitchSamplingHook',
    'StitchTestLoop',
    'StitchValLoop',
    'UniformSampler',
]
