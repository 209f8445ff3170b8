"""What a model's stitches cost."""

from .costs import cost_table
from .device import measuring_setup
from .latency import Latencies, LatencyCheck, measure_latency
from .memory import measure_memory
from .parts import preprocessed_size
from .trainable import ParameterCount, count_parameters

__all__ = [
    'Latencies',
    'LatencyCheck',
    'ParameterCount',
    'cost_table',
    'count_parameters',
    'measure_latency',
    'measure_memory',
    'measuring_setup',
    'preprocessed_size',
]
