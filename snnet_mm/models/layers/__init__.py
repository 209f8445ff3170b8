"""Stitching layers and their least-squares fit."""

from .least_squares import LeastSquares
from .stitching_layer import LoRAStitchingLayer, StitchingLayer

__all__ = ['LeastSquares', 'LoRAStitchingLayer', 'StitchingLayer']
