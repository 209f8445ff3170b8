"""What a model's stitches cost."""

from .costs import cost_table
from .device import measuring_setup
from .latency import Latencies, LatencyCheck, measure_latency
from .memory import measure_memory
from .parts import preprocessed_size

__all__ = [
    'Latencies',
    'LatencyCheck',
    'cost_table',
    'measure_latency',
    'measure_memory',
    'measuring_setup',
    'preprocessed_size',
]
