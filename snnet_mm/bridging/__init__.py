"""Bridges between networks that differ in more than width.

"Bridging Large Gaps in Neural Network Representations with Model Stitching": two frozen
networks of any kind, and trained adapters between any of their blocks.
"""

from .adapters import (
    Adapter,
    BottleneckAdapter,
    Conv3x3Adapter,
    LinearAdapter,
    LinearReLUAdapter,
    ViTBlockAdapter,
)
from .bridge_space import BridgeSpace
from .bridged_backbone import BridgedBackbone

__all__ = [
    'Adapter',
    'BottleneckAdapter',
    'BridgeSpace',
    'BridgedBackbone',
    'Conv3x3Adapter',
    'LinearAdapter',
    'LinearReLUAdapter',
    'ViTBlockAdapter',
]
