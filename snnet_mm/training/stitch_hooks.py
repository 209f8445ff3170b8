"""Hooks that initialise stitching layers, and sample and count stitches."""

import math
import time
from collections.abc import Iterator, Sequence

import numpy as np
from mmengine.dist import get_world_size
from mmengine.hooks import EMAHook, Hook
from mmengine.optim import OptimWrapperDict
from mmengine.registry import HOOKS, TASK_UTILS
from mmengine.runner import Runner
from torch import Tensor, nn

from snnet_mm.costs import (
    check_sizes,
    cost_table,
    size_of_images,
)
from snnet_mm.datasets import random_batches
from snnet_mm.models import (
    PartPerAnchor,
    StitchedBackbone,
    find_stitched_backbone,
    fit_stitching_layers,
    set_input_size,
    set_stitches,
    unwrapped,
)
from snnet_mm.stitching import Stitch, StitchTable
from snnet_mm.utils import check, is_whole, isolated_rng, shared_seed

METHODS = ('least-squares', 'kaiming')


@HOOKS.register_module()
class StitchInitHook(Hook):
    """Initialises the stitching layers before training.

    No-op if the loaded or resumed weights already contain stitching layers.

    Args:
        num_images: Number of random training images to fit to.
        method: ``'least-squares'``, or ``'kaiming'`` for torch's random initialisation
            of a linear layer (SN-Netv1, figure 8); low-rank layers then update a random
            map.
    """

    stitched_only = True  # a stitch exported alone does not need it

    def __init__(self, num_images: int = 100, method: str = 'least-squares') -> None:
        check(method in METHODS, 'StitchInitHook.method', method, METHODS)
        right = is_whole(num_images, 1)
        check(right, 'StitchInitHook.num_images', num_images, '1 or more')
        self.num_images, self.method = num_images, method

    def before_train(self, runner: Runner) -> None:
        backbone = find_stitched_backbone(runner.model)
        if backbone.stitching_initialized:
            runner.logger.info('The weights contain stitching layers, which are kept.')
            return
        if self.method == 'least-squares':
            self._fit(runner, backbone)
        else:  # They are already random and, like all weights, equal on all ranks.
            backbone.stitching_initialized.fill_(True)
            runner.logger.info('Stitching layers start random, without least squares.')
        for hook in runner.hooks:
            if isinstance(hook, EMAHook):
                average = find_stitched_backbone(hook.ema_model)
                layers = backbone.stitching_layers.state_dict()
                average.stitching_layers.load_state_dict(layers)
                average.stitching_initialized.fill_(True)

    def _fit(self, runner: Runner, backbone: StitchedBackbone) -> None:
        start = time.time()
        # The images neither depend on earlier draws nor affect later ones.
        with isolated_rng(runner.seed):
            batches = self._image_batches(runner)
            num_images = fit_stitching_layers(backbone, batches)
        runner.logger.info(
            f'Fitted {len(backbone.stitching_layers)} stitching layers by least '
            f'squares on {num_images} images per rank in {time.time() - start:.1f} s.'
        )

    def _image_batches(self, runner: Runner) -> Iterator[Tensor]:
        preprocess = unwrapped(runner.model).data_preprocessor
        loader = runner.train_dataloader
        for batch in random_batches(loader, runner.seed, self.num_images):
            images = preprocess(batch, training=True)['inputs']
            # If an image has several views, fit to the first.
            yield images if isinstance(images, Tensor) else images[0]


SIZES = 2**20  # above any rank: separates draws of sizes and stitches


@HOOKS.register_module()
class StitchSamplingHook(Hook):
    """Activates a newly sampled stitch before every optimizer step.

    Iterations that accumulate gradients for one step train the same stitch. If the
    sampler draws several stitches, the model must train several, as ``SandwichWrapper``
    does. Logs ``stitch_gflops``, summed over the stitches. ``stitches`` maps loss
    prefixes to stitches; the prefix of a single stitch is ``''``.

    Args:
        sampler: Config of the sampler. Its seed defaults to the seed of the run.
        input_size: Height and width at which costs are counted. Default: the size in
            the data preprocessor, else the size of the first image.
        sizes: Pairs of height and width to resize images to. One pair is drawn per
            step, the same on all ranks. Default: no resizing.
    """

    priority = 'VERY_HIGH'
    stitched_only = True  # a stitch exported alone does not need it

    def __init__(
        self,
        sampler: dict,
        input_size: Sequence[int] | None = None,
        sizes: Sequence[Sequence[int]] = (),
    ) -> None:
        self._sampler_cfg, self._input_size = sampler, input_size
        self._sizes = sizes
        self.stitches: dict[str, Stitch] = {}

    def before_train(self, runner: Runner) -> None:
        space = find_stitched_backbone(runner.model).space
        for module in runner.model.modules():
            if hasattr(type(module), 'check_space'):
                module.check_space(space)
        costs = self._count(runner)
        defaults = dict(costs=costs, seed=shared_seed(runner.seed), space=space)
        self.sampler = TASK_UTILS.build(self._sampler_cfg, default_args=defaults)
        if getattr(self.sampler, 'per_rank', False) and get_world_size() > 1:
            check_synchronised(runner.model)
        for hook in self.sampler.hooks():
            runner.register_hook(hook)
        self._sizes = check_sizes(runner.model, self._sizes, 'StitchSamplingHook.sizes')
        sizes = self._sizes if self.sampler.costs is not None else ()
        self._costs_at = {size: cost_table(runner.model, size) for size in sizes}

    def before_train_iter(self, runner: Runner, **_) -> None:
        step = runner.iter // accumulative_counts(runner)
        ids = self.sampler.sample(step)
        self.stitches, size = set_stitches(runner.model, ids), None
        if self._sizes:
            rng = np.random.default_rng([self.sampler.seed, step, SIZES])
            size = self._sizes[rng.integers(len(self._sizes))]
            set_input_size(runner.model, size)
        if (costs := self._costs_at.get(size, self.sampler.costs)) is not None:
            gflops = sum(costs[i].flops for i in ids) / 1e9
            runner.message_hub.update_scalar('train/stitch_gflops', gflops)

    def before_val(self, runner: Runner) -> None:
        set_input_size(runner.model, None)

    after_train = before_val

    def _count(self, runner: Runner) -> StitchTable | None:
        """Return the costs; if images have several views, log a warning instead."""
        size, seed = self._input_size, shared_seed(runner.seed)
        try:
            if size is None:
                size = size_of_images(runner.model, runner.train_dataloader, seed)
        except ValueError as error:
            runner.logger.warning(f'Stitches are sampled without costs: {error}')
            return None
        return cost_table(runner.model, size)


def check_synchronised(model: nn.Module) -> None:
    """Raise if a batch norm waits for ranks whose stitches do not run it.

    Every stitch runs what is outside of the backbone and of parts per anchor.
    """
    for name, part in model.named_modules():
        if isinstance(part, StitchedBackbone | PartPerAnchor):
            for own, module in part.named_modules(prefix=name):
                waits = isinstance(module, nn.SyncBatchNorm)
                expected = f'False, or BN in {own}: ranks with other stitches would '
                expected += 'wait for it for ever'
                check(not waits, 'sampler.per_rank', True, expected)


def sampling_hook(runner: Runner) -> StitchSamplingHook | None:
    """Return the ``StitchSamplingHook`` of a runner, or None if it has none."""
    hooks = (hook for hook in runner.hooks if isinstance(hook, StitchSamplingHook))
    return next(hooks, None)


def accumulative_counts(runner: Runner) -> int:
    """Return the number of iterations between steps that all optimizers share."""
    wrapper = runner.optim_wrapper
    several = isinstance(wrapper, OptimWrapperDict)
    wrappers = wrapper.values() if several else [wrapper]
    # DeepSpeed's wrapper has no counts.
    return math.lcm(*(getattr(w, '_accumulative_counts', 1) for w in wrappers))


HISTOGRAM = 'stitch_histogram'


@HOOKS.register_module()
class StitchReportHook(Hook):
    """Counts the training iterations of each stitch.

    The message hub, and thus every checkpoint, contains the counts by stitch id as
    ``stitch_histogram``.
    """

    stitched_only = True  # see StitchSamplingHook

    def before_train(self, runner: Runner) -> None:
        self._sampling = sampling_hook(runner)
        expected = 'a StitchSamplingHook, which a StitchReportHook reports on'
        check(self._sampling, 'default_hooks.stitch_sampling', None, expected)
        self._histogram = dict(runner.message_hub.runtime_info.get(HISTOGRAM, {}))

    def after_train_iter(self, runner: Runner, **_) -> None:
        for stitch in self._sampling.stitches.values():
            self._histogram[stitch.id] = self._histogram.get(stitch.id, 0) + 1
        runner.message_hub.update_info(HISTOGRAM, self._histogram)

    def after_train(self, runner: Runner) -> None:
        counts = ', '.join(f'{i}: {n}' for i, n in sorted(self._histogram.items()))
        runner.logger.info(f'Iterations of each stitch: {counts}')
