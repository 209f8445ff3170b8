"""Settings that act only in training, of every run of the papers' items."""

import re
from fnmatch import fnmatch

import numpy as np
import pytest
import torch
from config_models import DISTINCT, PAPERS, RUNS, build_on_meta, config_of
from mmengine.optim import build_optim_wrapper
from mmengine.registry import init_default_scope
from reproduce import find_runs

ROWS = PAPERS['training']
KEYS = {'batch', 'precision', 'optimizer', 'clip', 'drop_path', 'trained'}
KEYS |= {'rate', 'decay'}
ITEMS = [i for paper in PAPERS['papers'] for i in paper['items'] if 'train' in i]
ALL = {run.name: run for item in ITEMS for run in find_runs([item], RUNS, False)}
# The first run of each row, without copies for other data.
FIRST = [next(n for n in ALL if fnmatch(n, pattern)) for pattern in ROWS]
OTHERS = [n for n in ALL if n not in FIRST and (n in DISTINCT or n not in RUNS)]


def row_of(name):
    row = {}
    for pattern, settings in ROWS.items():
        row |= settings if fnmatch(name, pattern) else {}
    return row


def is_trained(patterns, name):
    found = False
    for pattern in patterns:
        if fnmatch(name, pattern.removeprefix('!')):
            found = not pattern.startswith('!')
    return found


def value_of(patterns, name, parameter, depths):
    """The first value whose pattern matches, of the block of the parameter."""
    kinds = {name, 'vectors'} if parameter.ndim == 1 else {name}
    value = next(v for p, v in patterns.items() if any(fnmatch(k, p) for k in kinds))
    if isinstance(value, list):
        prefix, block = re.match(r'(.*?)blocks\.(\d+)\.', name).groups()
        value = np.geomspace(*value, depths[prefix])[int(block)]
    return value


def drop_path_rates(anchor):
    """The rate of every block that has stochastic depth."""
    for block in anchor.trunk.blocks:
        rates = {
            getattr(module, 'rate', getattr(module, 'drop_prob', 0))
            for name, module in block.named_modules()
            if 'drop_path' in name
        }
        assert len(rates) <= 1
        yield from rates


@pytest.mark.parametrize(
    'names',
    [FIRST, pytest.param(OTHERS, marks=pytest.mark.slow)],
    ids=['first', 'others'],
)
def test_runs_train_as_the_papers(names, subtests):
    for name in sorted({*names}):
        with subtests.test(name):
            assert_trains_as(row_of(name), name)


def assert_trains_as(row, name):
    cfg = config_of(ALL[name])
    init_default_scope(cfg.default_scope)
    model, wrapper = build_on_meta(cfg), cfg.optim_wrapper.copy()

    gpus = int(re.search(r'_(\d)xb\d', name)[1])
    accumulated = wrapper.get('accumulative_counts', 1)
    batch = [gpus, cfg.train_dataloader.batch_size, accumulated]
    assert batch == row['batch']
    assert cfg.auto_scale_lr.base_batch_size == np.prod(batch)
    assert wrapper.get('clip_grad', {}).get('max_norm') == row['clip']
    anchors = getattr(model.backbone, 'anchors', [model.backbone])
    precision = str(getattr(anchors[0], 'dtype', torch.float32)).split('.')[1]
    if wrapper.pop('type') == 'AmpOptimWrapper':
        precision = wrapper.pop('dtype', 'float16')
    assert precision == row['precision']

    ends = row['drop_path']
    ends = ends if isinstance(ends[0], list) else [ends] * len(anchors)
    for anchor, expected in zip(anchors, ends, strict=True):
        rates = list(drop_path_rates(anchor)) or [0, 0]
        if len(expected) == 2:
            expected = np.linspace(*expected, len(rates))
        assert rates == pytest.approx(expected, abs=1e-4)

    optimizer = build_optim_wrapper(model, wrapper).optimizer
    found = {key: optimizer.defaults.get(key) for key in row['optimizer']}
    found = {k: list(v) if isinstance(v, tuple) else v for k, v in found.items()}
    assert found | {'type': type(optimizer).__name__} == row['optimizer']
    parameters = dict(model.named_parameters())
    groups = {id(p): g for g in optimizer.param_groups for p in g['params']}
    depths = {}
    for key in parameters:
        if block := re.match(r'(.*?)blocks\.(\d+)\.', key):
            depths[block[1]] = max(depths.get(block[1], 0), int(block[2]) + 1)
    for key, parameter in parameters.items():
        group = groups.get(id(parameter), dict(lr=0))
        trained = parameter.requires_grad and group['lr'] > 0
        assert trained == is_trained(row['trained'], key), key
        if trained:
            place = key, parameter, depths
            expected = value_of(row['rate'], *place), value_of(row['decay'], *place)
            found = group['lr'], group['weight_decay']
            assert found == pytest.approx(expected, rel=1e-3), key


def test_runs_have_all_settings():
    for name in ALL:
        assert row_of(name).keys() == KEYS, name
