from types import SimpleNamespace

import numpy as np
import pytest
from mmengine.registry import TRANSFORMS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import nn

from snnet_mm.engine import LabelCheckHook


@TRANSFORMS.register_module(name='SpoilLabels')
class SpoilLabels:
    """Writes one label into the corner of every map."""

    def __init__(self, label):
        self.label = label

    def __call__(self, results):
        results['gt_seg_map'] = np.array(results['gt_seg_map'])
        results['gt_seg_map'][0, 0] = self.label
        return results


class DetectionSet(list):
    metainfo = dict(classes=('cell', 'spot'))


class Head(nn.Module):
    def __init__(self, num_classes):
        super().__init__()
        self.num_classes = num_classes


def check(cfg, label, **kwargs):
    spoil = dict(type='SpoilLabels', label=label)
    cfg.train_dataloader.dataset.pipeline.insert(0, spoil)
    runner = Runner.from_cfg(cfg)
    runner._train_loop = runner.build_train_loop(runner._train_loop)
    LabelCheckHook(**kwargs).before_train(runner)


@pytest.mark.parametrize('label', [6, 254])
def test_a_label_outside_the_classes_is_refused(toy_cfg, label):
    with pytest.raises(ValueError, match=rf'\[{label}\]; .* 0 to 5 and 255'):
        check(toy_cfg, label)


@pytest.mark.parametrize('label', [0, 5, 255])
def test_classes_and_ignored_pixels_pass(toy_cfg, label):
    check(toy_cfg, label)


def test_training_does_not_start_with_a_wrong_label(toy_cfg):
    spoil = dict(type='SpoilLabels', label=9)
    toy_cfg.train_dataloader.dataset.pipeline.insert(0, spoil)
    with pytest.raises(ValueError, match=r'reduce_zero_label=\[9\]'):
        Runner.from_cfg(toy_cfg).train()


@pytest.mark.parametrize(('number', 'wrapped'), [(3, True), (150, False)])
def test_a_segmentor_of_another_number_of_classes(toy_cfg, number, wrapped):
    toy_cfg.model.decode_head.num_classes = number
    if wrapped:
        toy_cfg.model = dict(type='SandwichWrapper', model=toy_cfg.model)
    words = f'={number}; allowed: 6, .*model.decode_head.num_classes'
    with pytest.raises(ValueError, match=words):
        Runner.from_cfg(toy_cfg).train()


@pytest.mark.parametrize(
    ('attribute', 'number'),
    [('roi_head.bbox_head', 3), ('roi_head.mask_head', 80), ('bbox_head', 1)],
)
def test_a_detector_of_another_number_of_classes(attribute, number):
    sample = BaseDataElement(gt_instances=BaseDataElement())
    dataset = DetectionSet([dict(data_samples=sample)])
    model = nn.Module()
    model.roi_head, model.bbox_head = nn.Module(), Head(2)
    model.roi_head.bbox_head = nn.ModuleList([Head(2), Head(2)])
    model.roi_head.mask_head = Head(2)
    loader = SimpleNamespace(dataset=dataset)
    runner = SimpleNamespace(model=model, seed=0, train_dataloader=loader)
    LabelCheckHook().before_train(runner)
    if isinstance(head := model.get_submodule(attribute), nn.ModuleList):
        head[1].num_classes = number
    else:
        head.num_classes = number
    words = f'={number}; allowed: 2, .*model.{attribute}.num_classes'
    with pytest.raises(ValueError, match=words):
        LabelCheckHook().before_train(runner)
