import random

import numpy as np
import torch

from snnet_mm.utils import seed_everything


def draws():
    return random.random(), np.random.rand(), torch.rand(()).item()


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


def test_devices_may_be_left_alone(monkeypatch):
    seeded = []
    monkeypatch.setattr(torch, 'manual_seed', seeded.append)
    seed_everything(5, devices=False)
    expected = draws()
    assert seeded == []
    monkeypatch.undo()
    seed_everything(5)
    assert draws() == expected
