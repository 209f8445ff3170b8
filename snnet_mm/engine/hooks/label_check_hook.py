from __future__ import annotations

import numpy as np
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import Runner

from snnet_mm.utils import isolated_rng


@HOOKS.register_module()
class LabelCheckHook(Hook):
    """Looks at some segmentation labels before training starts.

    A label outside the classes is an index error on a CPU, a device assert on a GPU,
    and is silently left out by the metric.

    Args:
        num_samples: Training samples to look at, drawn at random.
        ignore_index: The label of pixels that belong to no class.

    Raises:
        ValueError: If the data set is empty, or a label is no class.
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
                if 'gt_sem_seg' not in sample:
                    return
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
