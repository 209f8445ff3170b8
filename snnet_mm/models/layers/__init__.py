"""Stitching layers, their least-squares fit, and adapters."""

from .adapters import (
    Adapter,
    BottleneckAdapter,
    Conv3x3Adapter,
    LinearAdapter,
    LinearReLUAdapter,
)
from .least_squares import LeastSquares
from .stitch_biases import StitchBiases
from .stitching_layer import LoRAStitchingLayer, StitchingLayer

__all__ = [
    'Adapter',
    'BottleneckAdapter',
    'Conv3x3Adapter',
    'LeastSquares',
    'LinearAdapter',
    'LinearReLUAdapter',
    'LoRAStitchingLayer',
    'StitchBiases',
    'StitchingLayer',
]
