"""Data sets, and checks of the data that a config names."""

from .batches import prepare, random_batches, spread
from .folder_check import (
    check_annotation_file,
    check_data_folders,
    naming_empty_data,
)
from .repeat_aug import InfiniteRepeatAugSampler
from .seeded import SeededDataset, SeededIndex, SeededSampler
from .toy_scenes import ToyInstances, ToyLabels, ToyObjects, ToyScenes
