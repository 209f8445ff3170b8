from importlib import metadata

import mmengine
import torch

import snnet_mm
from snnet_mm.utils.collect_env import collect_env


def test_this_environment():
    env = collect_env()
    assert env['snnet_mm'].startswith(f'{snnet_mm.__version__} (')
    assert env['PyTorch'] == torch.__version__
    assert env['CUDA available'] == str(torch.cuda.is_available())
    assert env['mmengine'].startswith(f'{mmengine.__version__} (')
    assert 'WARNING' not in env['mmengine']
    assert env["mmcv's ops"].startswith(('mmcv._ext', 'cannot be imported'))


def test_two_distributions_of_one_package(monkeypatch):
    """Each overwrote files of the other, which no error tells."""
    both = dict(mmcv=['onedl-mmcv', 'mmcv', 'mmcv'], mmseg=['mmsegmentation'])
    monkeypatch.setattr(metadata, 'packages_distributions', lambda: both)
    env = collect_env()
    assert '(mmcv, onedl-mmcv); WARNING: their files are mixed.' in env['mmcv']
    assert 'pip uninstall -y mmcv onedl-mmcv, and' in env['mmcv']
    assert env['mmseg'].endswith('(mmsegmentation)')
