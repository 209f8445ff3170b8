"""Data sets."""

from .toy_scenes import ToyScenes

__all__ = ['ToyScenes']
