"""FLOPs, parameters, milliseconds and memory of every stitch."""

from .counting import cost_table, count_parameters, part_costs, whole_model_cost
from .measure import (
    LatencyCheck,
    device_name,
    measure_latency,
    measure_memory,
    measuring_setup,
)
from .sizes import (
    check_sizes,
    preprocessed_size,
    size_name,
    size_of_images,
    window_of,
)
