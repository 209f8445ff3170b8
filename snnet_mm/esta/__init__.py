"""ESTA: low-rank updates, biases of every stitch, and importance."""

from snnet_mm.engine.resume import ADDED

from .importance import DEPLOYMENT, IMPORTANCE, importance_results
from .importance_sampler import ImportanceSampler
from .stitch_biases import StitchBiases

__all__ = [
    'DEPLOYMENT',
    'IMPORTANCE',
    'ImportanceSampler',
    'StitchBiases',
    'importance_results',
]

ADDED[r'(^|\.)stitch_biases\.'] = 'model.backbone.plugins'
