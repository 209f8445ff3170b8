"""Configs of this repository, with their models on meta tensors."""

from functools import cache
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS, init_default_scope

CONFIGS = Path(__file__).parents[2] / 'configs'
# As the authors draw them for 134 stitches.
GROUPS_OF_134 = [1, *[12] * 11, 1]


def paths(pattern):
    """Configs below the folder of configs, as tests name them."""
    found = (p.relative_to(CONFIGS) for p in CONFIGS.glob(pattern))
    return sorted(str(p) for p in found if '_base_' not in p.parts)


def read(name):
    cfg = Config.fromfile(CONFIGS / name)
    init_default_scope(cfg.default_scope)
    cfg.optim_wrapper.type = 'OptimWrapper'  # AMP is for GPUs
    return cfg


def build_on_meta(cfg):
    """Build a model without values, and skip what torch would compute of them."""
    with torch.device('meta'), pytest.MonkeyPatch.context() as patch:
        for name in (
            'add_',
            'clamp_',
            'erfinv_',
            'fill_',
            'mul_',
            'normal_',
            'uniform_',
        ):
            patch.setattr(torch.Tensor, name, lambda tensor, *_, **__: tensor)
        return MODELS.build(cfg.model)


def load(name):
    """A config and its model, for tests that only look; the scope is the config's."""
    cfg, model = _load(name)
    init_default_scope(cfg.default_scope)
    return cfg, model


@cache
def _load(name):
    cfg = read(name)
    return cfg, build_on_meta(cfg)


def num_parameters(*modules):
    return sum(p.numel() for m in modules for p in m.parameters())
