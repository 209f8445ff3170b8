"""Bridges: two frozen networks of any kind, and adapters between their blocks."""

from .adapters import (
    Adapter,
    BottleneckAdapter,
    Conv3x3Adapter,
    LinearAdapter,
    LinearReLUAdapter,
    ViTBlockAdapter,
)
from .bridged_backbone import BridgedBackbone, BridgeSpace
