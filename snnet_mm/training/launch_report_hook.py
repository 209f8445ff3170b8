"""What a training is about to use: device, batch and disk."""

import shutil

import torch
from mmengine.dist import get_world_size
from mmengine.hooks import CheckpointHook, Hook
from mmengine.runner import Runner
from torch import nn
from torch.optim import Optimizer

from .stitch_hooks import accumulative_counts

GB = 1e9


class LaunchReportHook(Hook):
    """Logs device, batch and disk of a training, and warns of surprises.

    A config that trains with another number of processes than it is made for
    (``auto_scale_lr.base_batch_size``) has another batch size, and checkpoints may not
    fit on the disk.
    """

    priority = 'VERY_HIGH'

    def before_train(self, runner: Runner) -> None:
        """Log the lines."""
        if runner.iter >= runner.max_iters:
            runner.logger.warning(
                f'Nothing is left to train: the resumed checkpoint has {runner.iter} '
                f'iterations of {runner.max_iters} (--resume; config key: load_from)'
            )
        self._report_batch(runner)
        self._report_disk(runner)

    def _report_batch(self, runner: Runner) -> None:
        processes = get_world_size()
        loader = runner.train_dataloader
        # mmdet's samplers make batches, and the loader then knows no size.
        size = loader.batch_size or getattr(loader.batch_sampler, 'batch_size', None)
        if size is None:  # batches of changing size
            return
        counts = accumulative_counts(runner.optim_wrapper)
        batch = processes * size * counts
        device = next(runner.model.parameters()).device
        name = torch.cuda.get_device_name(device) if device.type == 'cuda' else 'CPU'
        steps = f' x {counts} iterations' if counts > 1 else ''
        runner.logger.info(
            f'Device: {name}; {processes} process{"es" * (processes > 1)} x {size} '
            f'images{steps} = batch of {batch}'
        )
        settings = runner.cfg.get('auto_scale_lr') or {}
        base = settings.get('base_batch_size')
        if base in (None, batch) or settings.get('enable'):
            return
        ways = ['pass --auto-scale-lr']
        if base % (size * counts) == 0:
            ways.insert(0, f'start {base // (size * counts)} processes')
        if base % (processes * size) == 0:
            more = base // (processes * size)
            ways.append(f'set optim_wrapper.accumulative_counts={more}')
        runner.logger.warning(
            f'The config is made for batches of {base} images, and these have {batch}: '
            f'{", or ".join(ways)}'
        )

    def _report_disk(self, runner: Runner) -> None:
        hooks = [h for h in runner.hooks if isinstance(h, CheckpointHook)]
        optimizers = getattr(runner.optim_wrapper, 'optimizer', None)
        if not hooks or not isinstance(optimizers, Optimizer):
            return
        hook, size = hooks[0], checkpoint_bytes(runner.model, optimizers) / GB
        length = runner.max_epochs if hook.by_epoch else runner.max_iters
        number = length // hook.interval if hook.interval > 0 else 0
        number = min(number, hook.max_keep_ckpts) if hook.max_keep_ckpts > 0 else number
        number = max(number, int(bool(hook.save_last))) + bool(hook.save_best)
        needed, free = number * size, shutil.disk_usage(runner.work_dir).free / GB
        log = runner.logger.warning if needed > free else runner.logger.info
        log(
            f'Checkpoints: {number} x {size:.2g} GB in {runner.work_dir}, which has '
            f'{free:.0f} GB free (config key: default_hooks.checkpoint.max_keep_ckpts)'
        )


def checkpoint_bytes(model: nn.Module, optimizer: Optimizer) -> int:
    """Return the bytes of a checkpoint: weights, buffers and optimizer state."""
    defaults = optimizer.defaults
    moments = 2 if 'betas' in defaults else int(bool(defaults.get('momentum')))
    trained = (p for group in optimizer.param_groups for p in group['params'])
    states = sum(p.nbytes for p in trained if p.requires_grad)
    return sum(t.nbytes for t in model.state_dict().values()) + moments * states
