"""A look at all of the data that a config names, before it is trained on."""

from .report import CheckedSplit, check_split
from .samples import (
    ClassSample,
    DepthSample,
    Look,
    MapSample,
    ObjectsSample,
)
from .splits import samples_of

__all__ = [
    'CheckedSplit',
    'ClassSample',
    'DepthSample',
    'Look',
    'MapSample',
    'ObjectsSample',
    'check_split',
    'samples_of',
]
