"""Configs and runs of this repository, with their models on meta tensors."""

import sys
from copy import deepcopy
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
import torch
from mmengine.config import Config, DictAction
from mmengine.registry import MODELS, init_default_scope

CONFIGS = Path(__file__).parents[2] / 'configs'
sys.path.append(str(CONFIGS.parent / 'tools'))
from papers import options_of, read_config, read_papers, read_runs  # noqa: E402

PAPERS = read_papers()
RUNS = read_runs(PAPERS)
# Bridges over all gaps, from all seeds, are trained like those over the widest gap.
COPIES = '*-seed[12]_*', '*/bridge-*to[1-3]-*', '*/bridge-*-[23]to4-*'
# Runs to look at one by one.
DISTINCT = [n for n in RUNS if not any(fnmatch(n, pattern) for pattern in COPIES)]
# Sizes of the authors' sampling groups for 134 stitches.
GROUPS_OF_134 = [1, *[12] * 11, 1]


def paths(pattern):
    """Return matching configs as paths relative to ``configs``."""
    found = (p.relative_to(CONFIGS) for p in CONFIGS.glob(pattern))
    return sorted(str(p) for p in found if '_base_' not in p.parts)


def runs(pattern):
    """Return the names of matching runs of ``configs/papers.yml``, configs included."""
    depth = pattern.count('/')
    return [n for n in RUNS if fnmatch(n, pattern) and n.count('/') == depth]


def read(name):
    """Return the config of a file, or of a run, with its options."""
    if 'llama' in str(name):
        pytest.importorskip('transformers')
    run = RUNS.get(str(name).removesuffix('.py'))
    cfg = config_of(run) if run else Config.fromfile(name)
    init_default_scope(cfg.default_scope)
    cfg.optim_wrapper.type = 'OptimWrapper'  # AMP is for GPUs
    return cfg


def config_of(run):
    """Return the config of a run with its options, merged as by tools."""
    if 'llama' in run.name:
        pytest.importorskip('transformers')
    cfg = deepcopy(read_config(run.config))
    pairs = (option.split('=', 1) for option in options_of(run.options, cfg.model))
    cfg.merge_from_dict({k: DictAction._parse_iterable(v) for k, v in pairs})
    return cfg


def build_on_meta(cfg):
    """Build a model on the meta device, with in-place initialisers as no-ops."""
    with torch.device('meta'), pytest.MonkeyPatch.context() as patch:
        for name in ('add', 'clamp', 'erfinv', 'fill', 'mul', 'normal', 'uniform'):
            patch.setattr(torch.Tensor, f'{name}_', lambda tensor, *_, **__: tensor)
        return MODELS.build(cfg.model)


def load(name):
    """Return a cached, read-only config and its model, and activate its scope."""
    cfg, model = _load(str(name).removesuffix('.py'))
    init_default_scope(cfg.default_scope)
    return cfg, model


@cache
def _load(name):
    cfg = read(name)
    return cfg, build_on_meta(cfg)


def num_parameters(*modules):
    return sum(p.numel() for m in modules for p in m.parameters())
