import numpy as np
import pytest
from mmengine.registry import TRANSFORMS
from mmengine.runner import Runner

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


def check(cfg, label, **kwargs):
    spoil = dict(type='SpoilLabels', label=label)
    cfg.train_dataloader.dataset.pipeline.insert(0, spoil)
    runner = Runner.from_cfg(cfg)
    runner._train_loop = runner.build_train_loop(runner._train_loop)
    LabelCheckHook(**kwargs).before_train(runner)


@pytest.mark.parametrize('label', [6, 254])
def test_a_label_outside_the_classes_is_refused(toy_cfg, label):
    with pytest.raises(ValueError, match=rf'labels \[{label}\] .* 0 to 5 and 255'):
        check(toy_cfg, label)


@pytest.mark.parametrize('label', [0, 5, 255])
def test_classes_and_ignored_pixels_pass(toy_cfg, label):
    check(toy_cfg, label)


def test_training_does_not_start_with_a_wrong_label(toy_cfg):
    spoil = dict(type='SpoilLabels', label=9)
    toy_cfg.train_dataloader.dataset.pipeline.insert(0, spoil)
    with pytest.raises(ValueError, match=r'labels \[9\]'):
        Runner.from_cfg(toy_cfg).train()


@pytest.mark.parametrize('number', [3, 150])
def test_a_segmentor_of_another_number_of_classes(toy_cfg, number):
    toy_cfg.model.decode_head.num_classes = number
    words = f'a head of {number} classes on .* of 6; .*model.decode_head.num_classes'
    with pytest.raises(ValueError, match=words):
        Runner.from_cfg(toy_cfg).train()
