"""HOW two anchors join: stitching layers and their least-squares fit; adapters.

And what trains besides: low-rank updates, and biases of single stitches.
"""

from .adapters import (
    Adapter,
    BottleneckAdapter,
    Conv3x3Adapter,
    LinearAdapter,
    LinearReLUAdapter,
)
from .least_squares import LeastSquares
from .low_rank import LoRALinear, LowRankUpdate
from .stitch_biases import LayerBiases, StitchBiases
from .stitching_layer import LoRAStitchingLayer, StitchingLayer
from .token_state import TokenState

__all__ = [
    'Adapter',
    'BottleneckAdapter',
    'Conv3x3Adapter',
    'LayerBiases',
    'LeastSquares',
    'LinearAdapter',
    'LinearReLUAdapter',
    'LoRALinear',
    'LoRAStitchingLayer',
    'LowRankUpdate',
    'StitchBiases',
    'StitchingLayer',
    'TokenState',
]
