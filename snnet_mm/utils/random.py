"""Random state that does not leak."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from mmengine.dist import broadcast


@contextmanager
def isolated_rng(seed: int) -> Iterator[None]:
    """Run with all random generators seeded, then restore them.

    Covers ``random``, numpy's global generator and torch's on the CPU and GPUs.
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def shared_seed(seed: int) -> int:
    """The seed of rank 0, on every rank.

    Runs with ``randomness.diff_rank_seed`` have another seed on every rank.
    """
    shared = torch.tensor(seed)
    broadcast(shared)
    return int(shared)
