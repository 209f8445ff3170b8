import runpy
from importlib.metadata import version
from pathlib import Path

import mmseg
import torch

from snnet_mm import __version__

TOOL = Path(__file__).parents[2] / 'tools/info.py'


def test_info_prints_versions_and_operators(run_here, monkeypatch):
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 2)
    monkeypatch.setattr(torch.cuda, 'get_device_name', lambda i=0: f'GPU {i}')
    lines = run_here('info.py').splitlines()
    found = dict(line.split(maxsplit=1) for line in lines)
    assert found['snnet_mm'] == __version__
    assert found['torch'] == f'torch {version("torch")}'
    assert found['mmseg'].endswith(f'mmsegmentation {mmseg.__version__}')
    assert found['gpus'] == 'GPU 0, GPU 1'


def test_info_says_what_is_missing(monkeypatch):
    names = runpy.run_path(str(TOOL))
    monkeypatch.setitem(names['PACKAGES'], 'timm', ('no-such-distribution',))
    spec = names['find_spec']
    monkeypatch.setitem(
        names['versions'].__globals__,
        'find_spec',
        lambda name: None if name == 'mmcv._ext' else spec(name),
    )
    found = names['versions']()
    assert found['timm'] == 'none'
    assert found['operators'] == "torchvision's, for mmdet"
