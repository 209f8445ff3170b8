"""Bridges: two frozen networks of any kind, and adapters between their blocks."""

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
