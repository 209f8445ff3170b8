"""The steps of parameter schedulers: repeated for a new length, and run ahead."""

from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from types import SimpleNamespace

from mmengine.hooks import Hook
from mmengine.optim import _ParamScheduler
from mmengine.optim.scheduler.lr_scheduler import LRSchedulerMixin
from mmengine.runner import EpochBasedTrainLoop, Runner


class RescheduleHook(Hook):
    """Continues a resumed training on the schedule of its config.

    mmengine continues on that of the checkpoint, which may have ended. Base rates stay
    those of the checkpoint. Schedulers that depend on metrics cannot be repeated: with
    them, the schedule of the checkpoint stays.
    """

    priority = 'HIGHEST'

    def before_train(self, runner: Runner) -> None:
        schedulers = [*schedulers_of(runner)]
        if not runner.iter or not schedulers or any(map(needs_metrics, schedulers)):
            return
        for scheduler in schedulers:
            name = scheduler.param_name
            for group in scheduler.optimizer.param_groups:
                group[name] = group[f'initial_{name}']
                if name == 'momentum' and 'betas' in group:
                    group['betas'] = (group[name], group['betas'][1])
        settings = deepcopy(runner.cfg.param_scheduler)
        runner.param_schedulers = runner.build_param_scheduler(settings)
        schedulers = [*schedulers_of(runner)]
        for scheduler in schedulers:  # else it warns of steps before the optimizer's
            scheduler.optimizer._global_step = runner.iter
        advance(schedulers, 0, runner.iter, epoch_length(runner))
        runner.logger.info(
            f'The schedule is that of {runner.max_iters} iterations, of which '
            f'{runner.iter} are done (--iters, --epochs).'
        )


def schedulers_of(runner: Runner) -> Iterator[_ParamScheduler]:
    """Yield the schedulers of a runner, of all its optimizers."""
    built = runner.param_schedulers or []
    for part in built.values() if isinstance(built, dict) else [built]:
        yield from part


def needs_metrics(scheduler: _ParamScheduler) -> bool:
    """Return whether the steps of a scheduler depend on validations."""
    return getattr(scheduler, 'need_val_args', False)


def epoch_length(runner: Runner) -> int:
    """Return the number of iterations of an epoch; 0 if the loop counts none."""
    loop = runner.train_loop
    return len(loop.dataloader) if isinstance(loop, EpochBasedTrainLoop) else 0


def advance(
    schedulers: Sequence[_ParamScheduler], start: int, stop: int, epoch: int
) -> None:
    """Step schedulers from iteration ``start`` to ``stop``, as mmengine's hook does.

    ``epoch`` is the number of iterations of an epoch, or 0.
    """
    by_iteration = [s for s in schedulers if not s.by_epoch]
    by_epoch = [s for s in schedulers if s.by_epoch]
    for i in range(start + 1, stop + 1):
        for scheduler in by_iteration:
            scheduler.step()
        for scheduler in by_epoch if epoch and i % epoch == 0 else ():
            scheduler.step()


def end_of_rates(runner: Runner) -> int | None:
    """Return the iteration from which all learning rates are 0, if schedules end so.

    None if a schedule lasts as long as the training.
    """
    epoch = epoch_length(runner)
    rates = [
        scheduler
        for scheduler in schedulers_of(runner)
        if isinstance(scheduler, LRSchedulerMixin)
        and (epoch or not scheduler.by_epoch)
        and not needs_metrics(scheduler)  # which never raise a rate of 0
    ]
    ends = [s.end * (epoch if s.by_epoch else 1) for s in rates]
    if not rates or max(ends) >= runner.max_iters:
        return None
    copies, groups = [], {}
    for scheduler in rates:
        optimizer = scheduler.optimizer
        known = [{**g, 'params': ()} for g in optimizer.param_groups]
        known = groups.setdefault(id(optimizer), known)
        stand_in = SimpleNamespace(
            param_groups=known, step=optimizer.step, _global_step=1
        )
        copies.append(copied := copy(scheduler))
        copied.optimizer = stand_in
    advance(copies, runner.iter, max(ends), epoch)
    left = [g['lr'] > 1e-9 * g['initial_lr'] for gs in groups.values() for g in gs]
    return None if any(left) else max(ends)
