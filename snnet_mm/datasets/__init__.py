"""Data sets, samplers, and validation of the data paths in a config."""

from .batches import prepare, random_batches, spread
from .data_checks import (
    check_annotation_file,
    check_data_folders,
)
from .paired import PairedDataset
from .repeat_aug import InfiniteRepeatAugSampler
from .seeded import SeededDataset, SeededIndex, SeededSampler
from .toy_scenes import ToyLabels, ToyObjects, ToyScenes
