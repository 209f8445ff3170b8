"""Training and evaluation of stitches: samplers, hooks and loops."""

from .hooks import LabelCheckHook, StitchInitHook, StitchSamplingHook
from .loops import StitchTestLoop, StitchValLoop
from .samplers import ResourceConstrainedSampler, StitchSampler, UniformSampler

__all__ = [
    'LabelCheckHook',
    'ResourceConstrainedSampler',
    'StitchInitHook',
    'StitchSampler',
    'StitchSamplingHook',
    'StitchTestLoop',
    'StitchValLoop',
    'UniformSampler',
]
