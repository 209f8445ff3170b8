from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from mmengine.registry import TRANSFORMS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import nn

import snnet_mm.integrations.rules  # noqa: F401
from snnet_mm.engine import LabelCheckHook, TrainableParamsHook
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


@pytest.mark.parametrize(
    'label, num_classes, message',
    [
        (5, 6, None),
        (255, 6, None),
        (6, 6, r'reduce_zero_label=\[6\]; .* 0 to 5 and 255'),
        (0, 3, '=3; allowed: 6, .*model.decode_head.num_classes'),
    ],
)
def test_labels_and_classes_of_a_segmentor(toy_cfg, label, num_classes, message):
    spoil = dict(type='SpoilLabels', label=label)
    toy_cfg.train_dataloader.dataset.pipeline.insert(0, spoil)
    toy_cfg.model.decode_head.num_classes = num_classes
    toy_cfg.model = dict(type='SandwichWrapper', model=toy_cfg.model)
    runner = Runner.from_cfg(toy_cfg)
    fails = pytest.raises(ValueError, match=message) if message else nullcontext()
    with fails:
        LabelCheckHook().before_train(runner)


class Part(nn.Module):
    num_classes = 3


def test_heads_of_another_number_of_classes():
    """Things alone are allowed too, and heads that tell objects from background."""

    class DetectionSet(list):
        metainfo = dict(classes=('cell', 'spot', 'sky'), thing_classes=('a', 'b'))

    sample = BaseDataElement(gt_instances=BaseDataElement())
    loader = SimpleNamespace(dataset=DetectionSet([dict(data_samples=sample)]))
    model, rpn = nn.Module(), type('GARPNHead', (Part,), dict(num_classes=1))()
    model.bbox_head = nn.ModuleList([rpn, Part()])
    model.roi_head = nn.Module()
    model.roi_head.mask_head = nn.Module()  # as one for each end anchor
    model.roi_head.mask_head.parts = nn.ModuleList([Part(), Part()])
    runner = SimpleNamespace(model=model, seed=0, train_dataloader=loader)
    for name, number in (('bbox_head', '1'), ('roi_head.mask_head', 'parts.1')):
        (part := model.get_submodule(f'{name}.{number}')).num_classes = 2
        LabelCheckHook().before_train(runner)
        part.num_classes = 1
        with pytest.raises(
            ValueError, match=f'=1; allowed: 3 or 2, .*model.{name}.num'
        ):
            LabelCheckHook().before_train(runner)
        part.num_classes = 3


def test_trained_parameters_are_logged(toy_cfg, caplog):
    for anchor in toy_cfg.model.backbone.anchors:
        anchor.lora = dict(rank=4)
    runner, hook = Runner.from_cfg(toy_cfg), TrainableParamsHook()
    runner.logger.setLevel('INFO')
    runner.logger.addHandler(caplog.handler)
    runner._hooks.clear()
    hook.before_train(runner)
    said, warned = caplog.messages
    counts = count_parameters(runner.model)
    assert f'backbone.anchors {counts["backbone.anchors"]}, ' in said
    # qkv and proj of four blocks x 32 and eight x 96 channels, rank 4.
    assert f'backbone.anchors {24 * (4 * 32 + 8 * 96):,} of ' in said
    assert 'Only stitch 1 will be trained: there is no StitchSampl' in warned
    runner.model.requires_grad_(False)
    with pytest.raises(ValueError, match='all frozen .*lora'):
        hook.before_train(runner)
