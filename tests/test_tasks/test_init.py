"""Preparation of mmdetection, in a process of its own and where it is missing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from snnet_mm.tasks import import_parts_for

ROOT = Path(__file__).parents[2]
HIDDEN = """
import sys
sys.modules['mmcv._ext'] = None  # as where mmcv has no compiled operators
import mmseg.models  # and with it heads of mmdet
import snnet_mm
assert sys.modules['mmcv._ext'] is None
from mmengine.config import Config
Config.fromfile('configs/_base_/detection_runtime.py')
snnet_mm.tasks.import_parts_for(dict(default_scope='mmdet'))
import mmcv.ops
from mmengine.utils.dl_utils import mmcv_full_available
from mmdet.models.dense_heads import base_dense_head
assert base_dense_head.batched_nms is mmcv.ops.batched_nms
print(sys.modules['mmcv.ops.nms'].ext_module.__name__, mmcv_full_available())
"""


@pytest.mark.slow  # where nothing is compiled, all default tests of mmdet need it
def test_import_parts_for_mmdet_installs_torchvision_ops():
    """Where nothing is compiled."""
    done = subprocess.run(
        [sys.executable, '-c', HIDDEN],
        cwd=ROOT,
        env=os.environ | dict(PYTHONPATH=str(ROOT)),
        text=True,
        capture_output=True,
    )
    assert done.stdout.count("detection runs on torchvision's") == 1, done.stderr
    assert '\nsnnet_mm.utils.torchvision_ops True\n' in done.stdout


def test_import_parts_for_missing_mmdet_is_refused(monkeypatch):
    package = 'snnet_mm.tasks.detection_parts'
    for name in (package, f'{package}.coco_metric'):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, 'mmdet.evaluation', None)
    import_parts_for(dict(default_scope='mmseg'))
    assert package not in sys.modules
    message = f"'{package}' is invalid.*mmdet.evaluation"
    with pytest.raises(ValueError, match=message):
        import_parts_for(dict(default_scope='mmdet'))
