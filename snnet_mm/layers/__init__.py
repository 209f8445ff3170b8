"""HOW two anchors join: stitching layers, their least-squares fit, low-rank updates."""

from .least_squares import LeastSquares
from .low_rank import LoRALinear, LowRankUpdate
from .stitching_layer import LoRAStitchingLayer, StitchingLayer

__all__ = [
    'LeastSquares',
    'LoRALinear',
    'LoRAStitchingLayer',
    'LowRankUpdate',
    'StitchingLayer',
]
