import random
from contextlib import suppress

import numpy as np
import torch

from snnet_mm.utils import isolated_rng, seed_everything, shared_seed
from snnet_mm.utils import random as random_module


def draws():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_isolated_rng_leaves_generators_as_they_were():
    seed_everything(0)
    expected = [draws() for _ in range(3)]
    seed_everything(0)
    found = []
    for seed in range(3):
        with suppress(ZeroDivisionError), isolated_rng(seed):
            _ = sum(draws()) / (seed - 1)
        found.append(draws())
    assert found == expected


def test_seed_everything_by_seed_and_key_alone():
    keys = [(0,), (1,), (0, 0), (0, 1), (0, 0, 0), (0, 1, 0), (0, 0, 1)]
    drawn = []
    for key in keys + keys:
        draws()
        seed_everything(*key)
        drawn.append(draws())
    assert drawn[: len(keys)] == drawn[len(keys) :]
    for of_generator in zip(*drawn[: len(keys)], strict=True):
        assert len(set(of_generator)) == len(keys)


def test_shared_seed_is_that_of_first_rank(monkeypatch):
    assert shared_seed(2**32 - 1) == 2**32 - 1
    monkeypatch.setattr(random_module, 'broadcast', lambda tensor: tensor.fill_(7))
    assert shared_seed(8) == 7
