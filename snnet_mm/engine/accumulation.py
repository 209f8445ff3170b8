"""Gradients that are accumulated over iterations."""

import math

from mmengine.optim import OptimWrapper, OptimWrapperDict


def accumulative_counts(optim_wrapper: OptimWrapper | OptimWrapperDict) -> int:
    """Iterations from one step to the next; of several optimizers, to a common one."""
    if isinstance(optim_wrapper, OptimWrapperDict):
        return math.lcm(*map(accumulative_counts, optim_wrapper.values()))
    return optim_wrapper._accumulative_counts
