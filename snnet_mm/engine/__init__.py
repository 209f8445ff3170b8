"""Training and evaluation of stitches: samplers, hooks and loops."""

from .hooks import StitchInitHook, StitchSamplingHook
from .loops import StitchTestLoop, StitchValLoop
from .samplers import ResourceConstrainedSampler, StitchSampler, UniformSampler

__all__ = [
    'ResourceConstrainedSampler',
    'StitchInitHook',
    'StitchSampler',
    'StitchSamplingHook',
    'StitchTestLoop',
    'StitchValLoop',
    'UniformSampler',
]
