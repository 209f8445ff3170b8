"""Data sets."""

from .seeded import SeededDataset, SeededIndex, SeededSampler
from .toy_scenes import ToyScenes

__all__ = ['SeededDataset', 'SeededIndex', 'SeededSampler', 'ToyScenes']
