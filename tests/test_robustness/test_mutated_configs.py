"""A config with a fault is refused in words that name it, or trains rightly.

Mutated are what this package reads and the outline of the config. What mm's own parts
read (heads, transforms, optimizers) is up to them.
"""

import json
import traceback
from pathlib import Path

import pytest
import torch
from mutations import at, break_at, drawn, faults, is_of_another_kind, name_of
from tiny import tiny_config

from snnet_mm.utils import load_weights_only

OURS = [
    ('model', 'backbone'),
    ('model', 'data_preprocessor', 'size'),
    ('default_hooks', 'stitch_init'),
    ('default_hooks', 'stitch_sampling'),
    ('val_cfg',),
    ('train_dataloader', 'dataset'),
    ('train_dataloader', 'sampler'),
    ('default_hooks', 'checkpoint'),
]
OUTLINE = [
    'model',
    'train_dataloader',
    'train_cfg',
    'optim_wrapper',
    'val_dataloader',
    'val_evaluator',
    'default_hooks',
    'randomness',
    'env_cfg',
]
MMS = [('train_dataloader', 'dataset', 'pipeline')]
# Keys that may have any name, and mm's settings that take any value as true or false.
FREE = {('default_hooks', 'checkpoint')}
TRUTHS = {'shuffle', 'by_epoch'}

TORCH = str(Path(torch.__file__).parent)


def base():
    return json.loads(json.dumps(tiny_config().to_dict()))


def all_faults(tree):
    found = list(faults(tree, OURS, MMS))
    return found + [f for f in faults(tree, [(n,) for n in OUTLINE]) if len(f[0]) == 1]


BASE = base()
FEW = drawn(all_faults(BASE), 18, seed=1)
MANY = [f for f in drawn(all_faults(BASE), 118, seed=2) if f not in FEW][:95]


def is_silent(fault):
    """Whether a fault of this kind must not pass."""
    path, how, new = fault
    if path in FREE or path[-1] in TRUTHS:
        return False
    if how == 'misspelt':
        return True
    return how == 'changed' and is_of_another_kind(at(BASE, path), new)


def assert_clear(error, fault):
    """The message says which setting is meant, or what is wrong in it."""
    path, _, new = fault
    message = str(error)
    key = next(k for k in reversed(path) if isinstance(k, str))
    named = key in message or (new is not None and str(new) and str(new) in message)
    ours = isinstance(error, ValueError) and 'config key' in message
    assert named or ours, f'{type(error).__name__}: {message}'
    (last,) = traceback.extract_tb(error.__traceback__)[-1:]
    assert named or not last.filename.startswith(TORCH), message


def check(fault, run_tool, tmp_path):
    path = tmp_path / 'config.json'
    path.write_text(json.dumps(break_at(BASE, *fault)))
    try:
        run_tool('train.py', path, '--work-dir', tmp_path / 'run')
    except Exception as error:
        assert_clear(error, fault)
    else:
        assert not is_silent(fault)
        for path in (tmp_path / 'run').glob('*.pth'):
            for name, value in load_weights_only(path)['state_dict'].items():
                assert value.isfinite().all(), name


@pytest.mark.parametrize('fault', FEW, ids=name_of)
def test_a_fault_is_refused_or_does_no_harm(fault, run_tool, tmp_path):
    check(fault, run_tool, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize('fault', MANY, ids=name_of)
def test_more_faults(fault, run_tool, tmp_path):
    check(fault, run_tool, tmp_path)
