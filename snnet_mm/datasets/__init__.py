"""Data sets, and checks of the data that a config names."""

from .folder_check import check_annotation_file, check_data_folders
from .seeded import SeededDataset, SeededIndex, SeededSampler
from .toy_instances import ToyInstances, ToyObjects
from .toy_labels import ToyLabels
from .toy_scenes import ToyScenes

__all__ = [
    'SeededDataset',
    'SeededIndex',
    'SeededSampler',
    'ToyInstances',
    'ToyLabels',
    'ToyObjects',
    'ToyScenes',
    'check_annotation_file',
    'check_data_folders',
]
