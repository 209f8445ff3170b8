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


def model_of(part):
    """A model of a class with the name of a base class of an mm package."""
    model = type(part, (torch.nn.Module,), {})()
    for name in ('decode_head', 'head'):
        model.add_module(name, torch.nn.Identity())
        getattr(model, name).num_classes = 3
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
def test_models_metrics_and_wrapped_models_belong_to_a_task(
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


def test_labels_of_an_image_are_compared_one_by_one():
    model = model_of('BaseClassifier')
    model.head.thr = None
    assert task_of(model).divergence(model) is label_divergence
    several = torch.nn.Identity()  # as a PartPerAnchor
    several.active, model.head = model.head, several
    assert task_of(model).divergence(model) is label_divergence


def test_other_models_have_the_defaults():
    assert task_of(torch.nn.Identity()) is OTHER
    assert known('saving_keys') == {'out_file_path', 'output_dir', 'outfile_prefix'}


def test_divergences_by_hand():
    found = torch.zeros(1, 2)
    half = torch.tensor([[1.0, 3.0]]).log()
    wanted = 0.25 * torch.tensor(0.5).log() + 0.75 * torch.tensor(1.5).log()
    assert class_divergence(found, half).item() == pytest.approx(wanted.item())
    maps = torch.tensor([1.0, 2.0]), torch.tensor([0.0, 2.0])
    assert map_divergence(*maps).item() == pytest.approx(0.25)


def test_single_logits_are_of_a_sigmoid():
    """With probabilities of a quarter and three quarters, against a half."""
    target = torch.tensor([1 / 3, 3.0]).log()
    wanted = 0.25 * torch.tensor(0.5).log() + 0.75 * torch.tensor(1.5).log()
    maps, labels = (1, 1, 1, 2), (1, 2)
    for shape, divergence in ((maps, class_divergence), (labels, label_divergence)):
        found = torch.zeros(shape, requires_grad=True)
        value = divergence(found, target.view(shape))
        assert value.item() == pytest.approx(wanted.item())
        value.backward()
        # The difference of the probabilities, averaged.
        torch.testing.assert_close(found.grad.flatten(), torch.tensor([0.125, -0.125]))
