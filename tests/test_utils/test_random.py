import random

import numpy as np
import pytest
import torch

from snnet_mm.utils import isolated_rng


def draws():
    return random.random(), np.random.rand(), torch.rand(()).item()


def test_generators_go_on_as_if_nothing_had_been_drawn():
    draws()
    states = random.getstate(), np.random.get_state(), torch.get_rng_state()
    expected = [draws() for _ in range(3)]
    random.setstate(states[0])
    np.random.set_state(states[1])
    torch.set_rng_state(states[2])
    found = []
    for seed in range(3):
        with isolated_rng(seed):
            draws()
        found.append(draws())
    assert found == expected


def test_draws_inside_depend_on_the_seed_alone():
    inside = []
    for seed in (7, 7, 8):
        draws()
        with isolated_rng(seed):
            inside.append([draws() for _ in range(3)])
    assert inside[0] == inside[1]
    for a, b in zip(inside[0][0], inside[2][0], strict=True):
        assert a != b


def test_generators_are_restored_after_an_error():
    states = random.getstate(), np.random.get_state()[1].tolist()
    torch_state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), isolated_rng(0):
        _ = sum(draws()) / 0
    assert random.getstate() == states[0]
    assert np.random.get_state()[1].tolist() == states[1]
    assert torch.get_rng_state().equal(torch_state)


def test_seeds_nest():
    with isolated_rng(1):
        draws()
        expected = draws()
    with isolated_rng(1):
        draws()
        with isolated_rng(2):
            draws()
        assert draws() == expected


def test_only_the_gpu_of_this_process_is_touched(monkeypatch, recwarn):
    touched = []
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: True)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    monkeypatch.setattr(torch.cuda, 'current_device', lambda: 1)
    monkeypatch.setattr(torch.cuda, 'get_rng_state', touched.append)
    monkeypatch.setattr(torch.cuda, 'set_rng_state', lambda _, i: touched.append(i))
    monkeypatch.setattr(torch.cuda, 'manual_seed', lambda seed: None)
    with isolated_rng(0):
        draws()
    assert touched == [1, 1]
    assert not recwarn
