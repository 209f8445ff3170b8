"""ESTA: adapting stitched models to a task by low-rank updates and importance."""

from .importance import DEPLOYMENT, IMPORTANCE, importance_results
from .importance_sampler import ImportanceSampler

__all__ = ['DEPLOYMENT', 'IMPORTANCE', 'ImportanceSampler', 'importance_results']
