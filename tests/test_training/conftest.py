import pytest
from small import small, write_trained

from snnet_mm.utils import load_config


@pytest.fixture
def stitched_cfg(tmp_path):
    """Trains a stitched segmentor for an iteration."""
    cfg = small('tiny')
    cfg.work_dir = str(tmp_path / 'work')
    cfg.default_hooks.pop('stitch_statistics')
    cfg.log_level = 'WARNING'
    return cfg


@pytest.fixture(scope='module')
def plain(tmp_path_factory):
    """Config and weights of a plain segmentor."""
    return write_trained('seg', tmp_path_factory.mktemp('plain'))


@pytest.fixture
def plain_cfg(plain, tmp_path):
    """Trains a plain segmentor for an iteration."""
    cfg = load_config(plain[0], dict(work_dir=str(tmp_path / 'work')))
    cfg.train_cfg.update(max_iters=1, val_interval=1)
    cfg.optim_wrapper.type, cfg.log_level = 'OptimWrapper', 'WARNING'
    return cfg
