"""ESTA: low-rank updates, biases of every stitch, and importance."""

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
