from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.registry import TRANSFORMS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import nn
from watching_hooks import Recorder

from snnet_mm.engine import LabelCheckHook, TrainableParamsHook
from snnet_mm.engine.checking_hooks import HEADS
from snnet_mm.evaluation import count_parameters


@TRANSFORMS.register_module(name='SpoilLabels')
class SpoilLabels:
    """Writes one label into the corner of every map."""

    def __init__(self, label):
        self.label = label

    def __call__(self, results):
        results['gt_seg_map'] = np.array(results['gt_seg_map'])
        results['gt_seg_map'][0, 0] = self.label
        return results


def start(cfg, label):
    spoil = dict(type='SpoilLabels', label=label)
    cfg.train_dataloader.dataset.pipeline.insert(0, spoil)
    cfg.train_cfg.max_iters = 1
    Runner.from_cfg(cfg).train()


@pytest.mark.parametrize('label', [5, 255])
def test_classes_and_ignored_pixels_pass(toy_cfg, label):
    start(toy_cfg, label)


def test_a_label_outside_the_classes_is_refused(toy_cfg):
    message = r'reduce_zero_label=\[6\]; .* 0 to 5 and 255'
    with pytest.raises(ValueError, match=message):
        start(toy_cfg, 6)


@pytest.mark.parametrize(('number', 'wrapped'), [(3, True), (150, False)])
def test_a_segmentor_of_another_number_of_classes(toy_cfg, number, wrapped):
    toy_cfg.model.decode_head.num_classes = number
    if wrapped:
        toy_cfg.model = dict(type='SandwichWrapper', model=toy_cfg.model)
    words = f'={number}; allowed: 6, .*model.decode_head.num_classes'
    with pytest.raises(ValueError, match=words):
        Runner.from_cfg(toy_cfg).train()


class DetectionSet(list):
    metainfo = dict(classes=('cell', 'spot'))


class Part(nn.Module):
    num_classes = 2


@pytest.mark.parametrize('name', HEADS)
def test_a_head_of_another_number_of_classes(name):
    sample = BaseDataElement(gt_instances=BaseDataElement())
    loader = SimpleNamespace(dataset=DetectionSet([dict(data_samples=sample)]))
    model = nn.Module()
    for head in HEADS:
        owner = model
        *parents, last = head.split('.')
        for parent in parents:
            owner.register_module(parent, getattr(owner, parent, Part()))
            owner = getattr(owner, parent)
        owner.register_module(last, nn.ModuleList([Part(), Part()]))
    runner = SimpleNamespace(model=model, seed=0, train_dataloader=loader)
    LabelCheckHook().before_train(runner)
    model.get_submodule(name)[1].num_classes = 3
    with pytest.raises(ValueError, match=f'=3; allowed: 2, .*model.{name}.num_classes'):
        LabelCheckHook().before_train(runner)


def test_heads_of_things_and_of_objects_alone_pass():
    sample = BaseDataElement(gt_instances=BaseDataElement())
    data = DetectionSet([dict(data_samples=sample)])
    data.metainfo = dict(
        classes=('cell', 'spot', 'sky'), thing_classes=('cell', 'spot')
    )
    model, one_class = nn.Module(), type('RPNHead', (Part,), dict(num_classes=1))
    model.panoptic_head, model.mask_head = Part(), Part()
    model.panoptic_head.num_classes, model.bbox_head = 3, one_class()
    loader = SimpleNamespace(dataset=data)
    runner = SimpleNamespace(model=model, seed=0, train_dataloader=loader)
    LabelCheckHook().before_train(runner)
    model.mask_head.num_classes = 1
    with pytest.raises(ValueError, match='=1; allowed: 3 or 2, .*model.mask_head'):
        LabelCheckHook().before_train(runner)


# --- trained parameters


def test_lora_trains_updates_stitching_layers_and_heads(toy_cfg, caplog):
    for anchor in toy_cfg.model.backbone.anchors:
        anchor.lora = dict(rank=4)
    toy_cfg.log_level = 'INFO'
    runner, recorder = Runner.from_cfg(toy_cfg), Recorder()
    runner.register_hook(recorder)
    runner.logger.addHandler(caplog.handler)
    runner.train()
    changed = {
        k
        for k, v in runner.model.named_parameters()
        if not torch.equal(v, recorder.start[k])
    }
    assert any('anchors.1' in k for k in changed)
    assert any('stitching_layers' in k for k in changed)
    assert any('decode_head' in k for k in changed)
    assert all('lora' in k for k in changed if k.startswith('backbone'))
    (said,) = (m for m in caplog.messages if m.startswith('Trained parameters'))
    counts = count_parameters(runner.model)
    assert f'backbone.anchors {counts["backbone.anchors"]}, ' in said
    # qkv and proj of four blocks x 32 and eight x 96 channels, rank 4.
    trained = 24 * (4 * 32 + 8 * 96)
    assert f'backbone.anchors {trained:,} of ' in said


def test_a_model_with_nothing_to_train_is_refused(toy_cfg):
    runner = Runner.from_cfg(toy_cfg)
    runner.model.requires_grad_(False)
    with pytest.raises(ValueError, match='all frozen .*lora'):
        TrainableParamsHook().before_train(runner)
