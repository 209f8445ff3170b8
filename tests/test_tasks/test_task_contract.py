"""What every task holds to, and how tasks are found."""

import pytest
import torch
from mmengine.model import ExponentialMovingAverage

from snnet_mm.stitching import metric_directions
from snnet_mm.tasks import known, task_of
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
