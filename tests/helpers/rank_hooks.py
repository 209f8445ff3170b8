"""Hooks for runs with several ranks."""

import copy

import torch
from mmengine.dist import get_rank
from mmengine.hooks import Hook
from mmengine.registry import HOOKS

from snnet_mm.models import find_stitched_backbone, unwrapped


@HOOKS.register_module()
class RankRecorder(Hook):
    """Records the training of this rank in ``rank_<rank>.pth``."""

    priority = 'LOWEST'

    def __init__(self):
        self.record = dict(stitches=[], rates=[], saved=[])

    def before_train(self, runner):
        self.record['start'] = copy.deepcopy(unwrapped(runner.model).state_dict())

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        backbone = find_stitched_backbone(runner.model)
        self.record['stitches'].append(backbone.active_stitch.id)
        self.record['rates'].append(runner.optim_wrapper.get_lr()['lr'][0])

    def before_save_checkpoint(self, runner, checkpoint):
        self.record['saved'].append(checkpoint['meta']['iter'])

    def after_val_epoch(self, runner, metrics=None):
        self.record['metrics'] = {k: float(v) for k, v in metrics.items()}

    def after_train(self, runner):
        self.record['end'] = unwrapped(runner.model).state_dict()
        torch.save(self.record, f'{runner.work_dir}/rank_{get_rank()}.pth')
