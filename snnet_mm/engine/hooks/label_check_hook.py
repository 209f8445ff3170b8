from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import nn

from snnet_mm.evaluation.parts import unwrapped
from snnet_mm.utils import isolated_rng

# Of classifiers, segmentors and detectors.
HEADS = (
    'head',
    'decode_head',
    'auxiliary_head',
    'bbox_head',
    'roi_head.bbox_head',
    'roi_head.mask_head',
)


@HOOKS.register_module()
class LabelCheckHook(Hook):
    """Looks at some labels of segmentation or classification before training starts.

    A label outside the classes is an index error on a CPU, a device assert on a GPU,
    and is silently left out by the metric. Heads, those of detectors too, must have as
    many classes as the data.

    Args:
        num_samples: Training samples to look at, drawn at random.
        ignore_index: The label of pixels that belong to no class.

    Raises:
        ValueError: If the data set is empty, a label is no class, or a head has another
            number of them.
    """

    def __init__(self, num_samples: int = 16, ignore_index: int = 255) -> None:
        self.num_samples, self.ignore_index = num_samples, ignore_index

    def before_train(self, runner: Runner) -> None:
        """Check before the first iteration."""
        dataset = runner.train_dataloader.dataset
        if len(dataset) == 0:
            raise ValueError(
                'the training set has no samples (config key: train_dataloader.dataset)'
            )
        classes = dataset.metainfo.get('classes')
        if classes is None:
            return
        rng = np.random.default_rng(runner.seed)
        with isolated_rng(runner.seed):
            for i in rng.permutation(len(dataset))[: self.num_samples].tolist():
                sample = dataset[i]['data_samples']
                if 'gt_sem_seg' in sample:
                    self._check_map(sample, classes, i)
                elif 'gt_label' in sample:
                    _check_label(sample, classes, i)
                elif 'gt_instances' in sample:
                    break  # mmdet numbers them itself, by the classes
                else:
                    return
        _check_number(unwrapped(runner.model), classes)

    def _check_map(
        self, sample: BaseDataElement, classes: Sequence[str], i: int
    ) -> None:
        labels = set(sample.gt_sem_seg.data.unique().tolist())
        allowed = {*range(len(classes)), self.ignore_index}
        if not labels <= allowed:
            raise ValueError(
                f'labels {sorted(labels - allowed)} of '
                f'{sample.metainfo.get("seg_map_path", f"sample {i}")} are no '
                f'classes; allowed are 0 to {len(classes) - 1} and '
                f'{self.ignore_index} (config keys: train_dataloader.dataset, '
                'metainfo.classes, reduce_zero_label)'
            )


def _check_label(sample: BaseDataElement, classes: Sequence[str], i: int) -> None:
    wrong = [x for x in sample.gt_label.tolist() if not 0 <= x < len(classes)]
    if wrong:
        raise ValueError(
            f'labels {wrong} of {sample.metainfo.get("img_path", f"sample {i}")} are '
            f'no classes; allowed are 0 to {len(classes) - 1} (config keys: '
            'train_dataloader.dataset, metainfo.classes)'
        )


def _check_number(model: nn.Module, classes: Sequence[str]) -> None:
    for name in HEADS:
        head = model
        for attribute in name.split('.'):
            head = getattr(head, attribute, None)
        for part in head if isinstance(head, nn.ModuleList) else [head]:
            number = getattr(part, 'num_classes', len(classes))
            if number != len(classes):
                raise ValueError(
                    f'a head of {number} classes on a training set of {len(classes)}; '
                    f'wanted is the same number (config keys: model.{name}.'
                    'num_classes, train_dataloader.dataset)'
                )
