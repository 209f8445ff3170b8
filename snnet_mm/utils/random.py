"""Random state: set it from a few numbers, or keep it from leaking."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from mmengine.dist import broadcast


def seed_everything(seed: int, *key: int, devices: bool = True) -> None:
    """Seed ``random``, numpy's global generator and torch's, all not negative.

    Other keys give other, unrelated random streams. Without ``devices`` only torch's
    generator of the CPU is seeded, which takes microseconds.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=key)
    for_python, for_numpy, for_torch = sequence.generate_state(3).tolist()
    random.seed(for_python)
    np.random.seed(for_numpy)
    (torch if devices else torch.default_generator).manual_seed(for_torch)


@contextmanager
def isolated_rng(seed: int) -> Iterator[None]:
    """Run with all random generators seeded, then restore them.

    Covers ``random``, numpy's global generator and torch's on the CPU and the GPU that
    this process uses; of many visible GPUs torch would warn, and touch them all.
    """
    python_state, numpy_state = random.getstate(), np.random.get_state()
    devices = [torch.cuda.current_device()] if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices):
        random.seed(seed)
        np.random.seed(seed)
        torch.default_generator.manual_seed(seed)
        if devices:
            torch.cuda.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)


def shared_seed(seed: int) -> int:
    """The seed of rank 0, on every rank; with ``diff_rank_seed`` theirs differ."""
    shared = torch.tensor(seed)
    broadcast(shared)
    return int(shared)
