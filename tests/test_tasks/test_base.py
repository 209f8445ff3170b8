"""What every task holds to, how tasks are found, and what is imported for them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from mmengine.model import ExponentialMovingAverage

from snnet_mm.stitching import metric_directions
from snnet_mm.tasks import import_parts_for, known, task_of
from snnet_mm.tasks.base import (
    OTHER,
    class_divergence,
    label_divergence,
    map_divergence,
)


def model_of(part, **head):
    """A model of a class with the name of a base class of an mm package."""
    model = type(part, (torch.nn.Module,), {})()
    for name in ('decode_head', 'head'):
        model.add_module(name, torch.nn.Identity())
        vars(getattr(model, name)).update(num_classes=3, **head)
    return model


@pytest.mark.parametrize(
    'part, name, metric, direction, divergence, scope',
    [
        ('BaseSegmentor', 'segmentation', 'mIoU', 'higher', class_divergence, 'mmseg'),
        ('DepthEstimator', 'depth', 'nyu/RMSE', 'lower', map_divergence, 'mmseg'),
        ('BaseDetector', 'detection', 'bbox_mAP', 'higher', map_divergence, 'mmdet'),
        ('BaseClassifier', 'classification', 'top1', 'higher', class_divergence,
         'mmpretrain'),
    ],
)  # fmt: skip
def test_task_of_models_metrics_and_wrapped_models(
    part, name, metric, direction, divergence, scope
):
    model = model_of(part)
    task = task_of(model)
    assert task.name == name
    assert task_of(ExponentialMovingAverage(model)) is task
    assert (task.unsized, task.scope) == (name == 'detection', scope)
    assert metric_directions([metric]) == {metric: direction}
    assert task.ranking[0] in (*task.higher, *task.lower)
    assert task.divergence(model) is divergence


def test_divergence_of_multi_label_head_is_per_label():
    model = model_of('BaseClassifier', thr=None)
    assert task_of(model).divergence(model) is label_divergence
    several = torch.nn.Identity()  # as a PartPerAnchor
    several.active, model.head = model.head, several
    assert task_of(model).divergence(model) is label_divergence


def test_task_of_other_models_has_defaults():
    assert task_of(torch.nn.Identity()) is OTHER
    assert known('saving_keys') == {'out_file_path', 'output_dir', 'outfile_prefix'}


# Of probabilities of a quarter and three quarters, against a half.
WANTED = 0.25 * torch.tensor(0.5).log() + 0.75 * torch.tensor(1.5).log()
ODDS = [[1 / 3, 3.0]]


@pytest.mark.parametrize(
    ('divergence', 'odds', 'shape'),
    [
        (class_divergence, [[1.0, 3.0]], (1, 2)),
        # Single logits are of a sigmoid.
        (class_divergence, ODDS, (1, 1, 1, 2)),
        (label_divergence, ODDS, (1, 2)),
    ],
)
def test_divergences_equal_those_by_hand(divergence, odds, shape):
    found = torch.zeros(shape, requires_grad=True)
    value = divergence(found, torch.tensor(odds).log().view(shape))
    torch.testing.assert_close(value, WANTED)
    value.backward()
    assert found.grad.abs().sum() == pytest.approx(0.5 if odds != ODDS else 0.25)
    maps = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 2.0])
    assert map_divergence(*maps).item() == pytest.approx(0.25)


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
    package = 'snnet_mm.tasks.mmdet'
    for name in (package, f'{package}.coco_metric'):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, 'mmdet.evaluation', None)
    import_parts_for(dict(default_scope='mmseg'))
    assert package not in sys.modules
    with pytest.raises(ValueError, match=r'mmdet\.evaluation'):
        import_parts_for(dict(default_scope='mmdet'))
