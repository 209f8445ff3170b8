"""Data sets, and checks of the data that a config names."""

from .folder_check import check_data_folders
from .seeded import SeededDataset, SeededIndex, SeededSampler
from .toy_scenes import ToyScenes

__all__ = [
    'SeededDataset',
    'SeededIndex',
    'SeededSampler',
    'ToyScenes',
    'check_data_folders',
]
