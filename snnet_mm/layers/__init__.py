"""HOW two anchors join: stitching layers and their least-squares fit.

And what trains besides: low-rank updates, and biases of single stitches.
"""

from .least_squares import LeastSquares
from .low_rank import LoRALinear, LowRankUpdate
from .stitch_biases import LayerBiases, StitchBiases
from .stitching_layer import LoRAStitchingLayer, StitchingLayer

__all__ = [
    'LayerBiases',
    'LeastSquares',
    'LoRALinear',
    'LoRAStitchingLayer',
    'LowRankUpdate',
    'StitchBiases',
    'StitchingLayer',
]
