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


class Unknown(torch.nn.Module):
    """A model of no package."""


class TaskContract:
    """Checks of one task; subclasses say what it is."""

    part, name, metric, direction = None, None, None, None
    divergence, unsized, scope = None, False, None

    def test_models_metrics_and_wrapped_models_belong_to_it(self):
        task = task_of(self.model())
        assert task.name == self.name
        assert task_of(ExponentialMovingAverage(self.model())) is task
        assert (task.unsized, task.scope) == (self.unsized, self.scope)

    def test_its_ranking_metric_has_a_direction(self):
        task = task_of(self.model())
        found = metric_directions([self.metric])
        assert found == {self.metric: self.direction}
        assert task.ranking[0] in (*task.higher, *task.lower)

    def test_teachers_are_compared_by_its_divergence(self):
        model = self.model()
        assert task_of(model).divergence(model) is self.divergence

    def model(self):
        model = type(self.part, (torch.nn.Module,), {})()
        for name in ('decode_head', 'head'):
            model.add_module(name, torch.nn.Identity())
            getattr(model, name).num_classes = 3
        return model


class TestSegmentation(TaskContract):
    part, name, metric, direction = 'BaseSegmentor', 'segmentation', 'mIoU', 'higher'
    divergence, scope = staticmethod(class_divergence), 'mmseg'


class TestDepth(TaskContract):
    part, name, metric, direction = 'DepthEstimator', 'depth', 'nyu/RMSE', 'lower'
    divergence, scope = staticmethod(map_divergence), 'mmseg'


class TestDetection(TaskContract):
    part, name, metric = 'BaseDetector', 'detection', 'coco/bbox_mAP'
    direction, unsized, scope = 'higher', True, 'mmdet'
    divergence = staticmethod(map_divergence)


class TestClassification(TaskContract):
    part, name, metric = 'BaseClassifier', 'classification', 'accuracy/top1'
    direction, scope = 'higher', 'mmpretrain'
    divergence = staticmethod(class_divergence)

    def test_labels_of_an_image_are_compared_one_by_one(self):
        model = self.model()
        model.head.thr = None
        assert task_of(model).divergence(model) is label_divergence
        several = torch.nn.Identity()  # as a PartPerAnchor
        several.active, model.head = model.head, several
        assert task_of(model).divergence(model) is label_divergence


def test_other_models_have_the_defaults():
    assert task_of(Unknown()) is OTHER
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
