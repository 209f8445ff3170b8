from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement
from torch import nn

from snnet_mm.models import unwrapped
from snnet_mm.utils import check, isolated_rng, register

# Names of heads with a class for each of the data's; ``snnet_mm.integrations`` adds
# those of the mm packages.
HEADS: list[str] = []
# Names of classes of heads that tell objects from background, whatever the data.
ONE_CLASS: set[str] = set()


@register(HOOKS)
class LabelCheckHook(Hook):
    """Looks at some labels of segmentation or classification before training starts.

    A label outside the classes is an index error on a CPU, a device assert on a GPU,
    and is silently left out by the metric. Heads, those of detectors too, must have as
    many classes as the data.

    Args:
        num_samples: Number of training samples to look at, drawn at random.
        ignore_index: The label of pixels that belong to no class; by default that of
            the model's ``decode_head``, else 255.
    """

    def __init__(self, num_samples: int = 16, ignore_index: int | None = None) -> None:
        self.num_samples, self.ignore_index = num_samples, ignore_index

    def before_train(self, runner: Runner) -> None:
        """Check before the first iteration."""
        dataset = runner.train_dataloader.dataset
        num_samples = len(dataset)
        check(num_samples, 'train_dataloader.dataset', num_samples, '1 sample or more')
        classes = getattr(dataset, 'metainfo', {}).get('classes')
        if classes is None:
            return
        model = unwrapped(runner.model)
        chosen = np.random.default_rng(runner.seed).permutation(num_samples)
        with isolated_rng(runner.seed):
            for i in chosen[: self.num_samples].tolist():
                sample = dataset[i].get('data_samples', ())
                if 'gt_instances' in sample:
                    break  # mmdet numbers them itself, by the classes
                elif 'gt_sem_seg' in sample:
                    labels = sample.gt_sem_seg.data.unique()
                    ignored = {self._ignored_label(model)}
                    _check_labels(labels, sample, 'seg_map_path', classes, ignored)
                elif 'gt_label' in sample:
                    _check_labels(sample.gt_label, sample, 'img_path', classes)
                else:
                    return
        # Heads of panoptic models may have the classes of things alone.
        things = dataset.metainfo.get('thing_classes') or classes
        _check_heads(model, {len(classes), len(things)})

    def _ignored_label(self, model: nn.Module) -> int:
        head = getattr(model, 'decode_head', None)
        head = head[-1] if isinstance(head, nn.ModuleList) else head
        own = getattr(head, 'ignore_index', 255)
        return own if self.ignore_index is None else self.ignore_index


def _check_labels(
    labels: Sequence[int],
    sample: BaseDataElement,
    path_key: str,
    classes: Sequence[str],
    ignored: Sequence[int] = (),
) -> None:
    wrong = sorted(set(labels.tolist()) - {*range(len(classes)), *ignored})
    allowed = ' and '.join([f'0 to {len(classes) - 1}', *map(str, ignored)])
    of = sample.metainfo.get(path_key, 'a sample')
    keys = 'train_dataloader.dataset, metainfo.classes, reduce_zero_label'
    check(not wrong, keys, wrong, f'labels {allowed} in {of}')


def _check_heads(model: nn.Module, allowed: set[int]) -> None:
    for name in HEADS:
        head = model
        for attribute in name.split('.'):
            head = getattr(head, attribute, None)
        for part in head if isinstance(head, nn.ModuleList) else [head]:
            if {kind.__name__ for kind in type(part).__mro__} & ONE_CLASS:
                continue
            number = getattr(part, 'num_classes', max(allowed))
            numbers = ' or '.join(map(str, sorted(allowed, reverse=True)))
            data = f'{numbers}, the number of classes of the training set'
            check(number in allowed, f'model.{name}.num_classes', number, data)
