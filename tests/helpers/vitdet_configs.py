"""Loading of ViTDet's configs."""

from pathlib import Path

from mmengine.config import Config
from mmengine.registry import init_default_scope

CONFIGS = Path(__file__).parents[2] / 'configs' / 'vitdet'


def load(path):
    cfg = Config.fromfile(path)
    init_default_scope(cfg.default_scope)
    # AMP is for GPUs alone.
    assert cfg.optim_wrapper.type == 'AmpOptimWrapper'
    cfg.optim_wrapper.type = 'OptimWrapper'
    return cfg


FILES = {
    'two_and_a_crowd': dict(height=48, width=96),
    'over_the_edge': dict(height=64, width=64),
    'empty': dict(height=40, width=40),
    'smaller_than_a_window': dict(height=33, width=35),
}
