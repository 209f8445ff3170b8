"""One look at a training before it starts: what cannot be meant, and what may not be.

Each finding is a function of the runner that yields warnings, and raises a ValueError
for what cannot be meant. They are listed from the most to the least harmful.
"""

from collections.abc import Iterator, Mapping

import torch
from mmengine.dist import get_world_size
from mmengine.hooks import Hook
from mmengine.registry import HOOKS
from mmengine.runner import EpochBasedTrainLoop, Runner
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

from snnet_mm.costs import count_parameters
from snnet_mm.models import StitchedBackbone, unwrapped
from snnet_mm.tasks.base import class_names
from snnet_mm.utils import check
from snnet_mm.utils.configs import misspelt_keys

from .initial_weights import as_loaded, check_initial_weights
from .label_checks import check_labels
from .schedule_steps import end_of_rates, epoch_length, needs_metrics, schedulers_of
from .stitch_hooks import accumulative_counts, sampling_hook
from .trial import try_validation

# Samplers of mmengine and mmdet whose indices never end.
ENDLESS = {'InfiniteSampler', 'MultiSourceSampler'}


@HOOKS.register_module()
class TrainingCheckHook(Hook):
    """Runs :func:`check_training` before a training, and logs its batch and parameters.

    Checked are loops and samplers, learning rates, initial weights, labels and heads,
    a few images of the validation, and names of settings.
    """

    priority = 'VERY_HIGH'

    def __init__(self) -> None:
        self.loaded: Mapping[str, Tensor] | None = None

    def after_load_checkpoint(self, runner: Runner, checkpoint: dict) -> None:
        """Remember the loaded weights by name."""
        self.loaded = as_loaded(checkpoint)

    def before_train(self, runner: Runner) -> None:
        check_training(runner, self.loaded)
        self.loaded = None
        counts = count_parameters(runner.model)
        trained, total = map(sum, zip(*counts.values(), strict=True))
        parts = ', '.join(f'{name} {n:,} of {m:,}' for name, (n, m) in counts.items())
        runner.logger.info(
            f'Trained parameters: {trained:,} of {total:,} '
            f'({100 * trained / total:.3g} %): {parts}'
        )


def check_training(runner: Runner, loaded: Mapping[str, Tensor] | None = None) -> None:
    """Warn of all that may make a training meaningless; raise for what must.

    Args:
        runner: The runner, ready to train.
        loaded: Weights of the checkpoint that it has loaded or resumed, if any.

    Raises:
        ValueError: With all that cannot be meant, most harmful first.
    """
    warned, refused = [], []
    looks = (
        _endless_loops(runner),
        _rates(runner),
        check_initial_weights(runner, loaded),
        _gradients(runner),
        _labels(runner),
        misspelt_keys(runner.cfg),
        _batch(runner),
    )
    for look in looks:
        try:
            for warning in look:
                warned.append(warning)
        except ValueError as error:
            refused.append(error)
    for warning in warned:
        runner.logger.warning(warning)
    if len(refused) == 1:
        raise refused[0]
    if refused:
        raise ValueError('\n'.join(map(str, refused))) from refused[0]
    try_validation(runner)


def _endless_loops(runner: Runner) -> Iterator[str]:
    """Refuse epochs without an end or an iteration."""
    for phase, loop in (('train', runner.train_loop), ('val', runner.val_loop)):
        if loop is None or isinstance(loop.dataloader.dataset, IterableDataset):
            continue
        loader, key = loop.dataloader, f'{phase}_dataloader'
        endless = sorted({*_sampler_names(loader)} & ENDLESS)
        whole = phase == 'val' or isinstance(loop, EpochBasedTrainLoop)
        expected = 'a sampler whose epoch ends, such as DefaultSampler, as '
        expected += f'{type(loop).__name__} runs whole epochs'
        check(not (endless and whole), f'{key}.sampler', endless, expected)
        number = len(loader.dataset)
        expected = f'up to {number}, the number of samples, as drop_last drops '
        expected += 'incomplete batches'
        runs = endless or not number or len(loader)
        check(runs, f'{key}.batch_size', loader.batch_size, expected)
    yield from ()


def _sampler_names(loader: DataLoader) -> Iterator[str]:
    """Yield the class names of the samplers of a loader, and of those inside them."""
    for sampler in (loader.sampler, loader.batch_sampler):
        while sampler is not None:
            yield from class_names(sampler)
            sampler = getattr(sampler, 'sampler', None)


def _rates(runner: Runner) -> Iterator[str]:
    """Find learning rates of 0, and schedules that never act."""
    done, end = runner.iter, runner.max_iters
    if done >= end:
        yield (
            f'Nothing is left to train: the resumed checkpoint has {done} iterations '
            f'of {end} (--resume; config key: load_from)'
        )
        return
    if (last := end_of_rates(runner)) is not None:
        expected = f'a schedule that lasts {end} iterations: the learning rate is 0 '
        expected += f'from {last} on; --iters or --epochs rescale it, on resuming, too'
        check(done < last, 'param_scheduler.end', last, expected)
        yield (
            f'The learning rate is 0 from iteration {last} of {end} on: pass --iters '
            'to rescale the schedule (config key: param_scheduler.end)'
        )
    for scheduler in schedulers_of(runner) if not epoch_length(runner) else ():
        if scheduler.by_epoch and not needs_metrics(scheduler):
            yield (
                f'{type(scheduler).__name__} counts epochs, but the training counts '
                'iterations: it never acts (config key: param_scheduler.by_epoch)'
            )


def _gradients(runner: Runner) -> Iterator[str]:
    """Find models of which nothing, or not what is meant, can be trained."""
    model = runner.model
    total = sum(p.numel() for p in model.parameters())
    trains = any(p.requires_grad for p in model.parameters())
    keys = 'backbone.anchors.frozen_stages, lora, stitching_layer'
    expected = f'trainable parameters; all {total:,} of the model are frozen'
    check(trains, keys, 0, expected)
    for module in model.modules():
        if isinstance(module, StitchedBackbone):
            idle = any(p.requires_grad for p in module.parameters())
            if isinstance(model, DistributedDataParallel) and idle:
                finds = model.find_unused_parameters or model.static_graph
                expected = 'True, as no stitch gives all parameters a gradient'
                check(finds, 'find_unused_parameters', False, expected)
            if sampling_hook(runner) is None:
                yield (
                    f'Only stitch {module.active_stitch.id} will be trained: there is '
                    'no StitchSamplingHook (config key: default_hooks.stitch_sampling).'
                )
    yield from _float16(runner)


def _float16(runner: Runner) -> Iterator[str]:
    """Refuse float16 if it cannot hold the number by which a mask loss is divided.

    mmdet divides that of MaskFormer and Mask2Former by the number of points of all
    masks: in float16 the loss would be 0 or NaN.
    """
    # None of mmengine's AmpOptimWrapper means torch's default on GPUs.
    dtype = getattr(runner.optim_wrapper, 'cast_dtype', torch.bfloat16)
    for part in runner.model.modules():
        kinds = class_names(part)
        if 'MaskFormerHead' in kinds and 'EoMTHead' not in kinds:
            found, wide = str(dtype or torch.float16), dtype is torch.bfloat16
            expected = f"'bfloat16' for {type(part).__name__}, whose mask loss "
            expected += 'exceeds float16; or train without --amp'
            check(wide, 'optim_wrapper.dtype', found, expected)
    yield from ()


def _labels(runner: Runner) -> Iterator[str]:
    """Check labels, class names and the number of classes of heads."""
    model, data = unwrapped(runner.model), runner.train_dataloader.dataset
    yield from check_labels(data, 'train', model, runner.seed)
    if (loop := runner.val_loop) is not None:
        yield from check_labels(loop.dataloader.dataset, 'val', model, runner.seed)


def _batch(runner: Runner) -> Iterator[str]:
    """Log the batch size; find one for which the config is not made.

    It depends on the number of processes; that of the config is
    ``auto_scale_lr.base_batch_size``.
    """
    processes, loader = get_world_size(), runner.train_dataloader
    # mmdet's samplers make batches, and the loader then knows no size.
    size = loader.batch_size or getattr(loader.batch_sampler, 'batch_size', 0)
    if not size:  # batches of changing size
        return
    counts = accumulative_counts(runner)
    batch = processes * size * counts
    device = next(runner.model.parameters()).device.type
    steps = f' x {counts} iterations' if counts > 1 else ''
    runner.logger.info(
        f'Batch of {batch}: {size} images{steps} per process; processes: '
        f'{processes} ({device})'
    )
    settings = runner.cfg.get('auto_scale_lr') or {}
    base = settings.get('base_batch_size')
    if base not in (None, batch) and not settings.get('enable'):
        yield (
            f'The config is made for batches of {base} images, and these have {batch}: '
            'change the number of processes or optim_wrapper.accumulative_counts, or '
            'pass --auto-scale-lr'
        )
