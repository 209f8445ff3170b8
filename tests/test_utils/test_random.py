import random
from contextlib import suppress

import numpy as np
import torch

from snnet_mm.utils import isolated_rng, seed_everything, shared_seed
from snnet_mm.utils import random as random_module


def draws():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_generators_go_on_as_if_nothing_had_been_drawn():
    seed_everything(0)
    expected = [draws() for _ in range(3)]
    seed_everything(0)
    found = []
    for seed in range(3):
        with suppress(ZeroDivisionError), isolated_rng(seed):
            _ = sum(draws()) / (seed - 1)
        found.append(draws())
    assert found == expected


def test_draws_depend_on_the_seed_and_the_key_alone():
    keys = [(0,), (1,), (0, 0), (0, 1), (0, 0, 0), (0, 1, 0), (0, 0, 1)]
    drawn = []
    for key in keys + keys:
        draws()
        seed_everything(*key)
        drawn.append(draws())
    assert drawn[: len(keys)] == drawn[len(keys) :]
    for of_generator in zip(*drawn[: len(keys)], strict=True):
        assert len(set(of_generator)) == len(keys)


def test_ranks_share_the_seed_of_the_first(monkeypatch):
    assert shared_seed(2**32 - 1) == 2**32 - 1
    monkeypatch.setattr(random_module, 'broadcast', lambda tensor: tensor.fill_(7))
    assert shared_seed(8) == 7
