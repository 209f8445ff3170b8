"""Random state: seed all generators, or isolate a block of code."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from mmengine.dist import broadcast


def seed_everything(seed: int, *key: int, devices: bool = True) -> None:
    """Seed ``random``, numpy's global generator and torch's generators.

    ``seed`` and ``key`` must not be negative; each key selects an unrelated random
    stream. Without ``devices``, torch's GPU generators are not seeded, so that the call
    takes microseconds.
    """
    sequence = np.random.SeedSequence(seed, spawn_key=key)
    for_python, for_numpy, for_torch = sequence.generate_state(3).tolist()
    random.seed(for_python)
    np.random.seed(for_numpy)
    (torch if devices else torch.default_generator).manual_seed(for_torch)


@contextmanager
def isolated_rng(seed: int) -> Iterator[None]:
    """Run a block with all random generators seeded, then restore their states.

    Covers ``random``, numpy's global generator, and torch's on the CPU and the current
    GPU. By default torch would fork all visible GPUs, and warn if there are several.
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
    """Return rank 0's seed on every rank; seeds differ with ``diff_rank_seed``."""
    shared = torch.tensor(seed)
    broadcast(shared)
    return int(shared)
