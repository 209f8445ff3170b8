from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
from mmengine.dist import get_rank, get_world_size
from mmengine.hooks import EMAHook, Hook
from mmengine.model import is_model_wrapper
from mmengine.registry import HOOKS
from mmengine.runner import Runner
from torch import Tensor

from snnet_mm.models import (
    StitchedBackbone,
    find_stitched_backbone,
    fit_stitching_layers,
    gathered,
)
from snnet_mm.utils import check, is_whole, isolated_rng, register, shared_seed

METHODS = ('least-squares', 'kaiming')


@register(HOOKS)
class StitchInitHook(Hook):
    """Gives the stitching layers their first weights before training.

    Does nothing if the weights, loaded or resumed, already hold stitching layers,
    however these were initialised.

    Args:
        num_images: Images of the training set to fit to, drawn at random; the paper
            takes 100.
        ridge: See :class:`snnet_mm.models.LeastSquares`.
        method: ``'least-squares'``, or ``'kaiming'`` for torch's random weights of a
            linear layer (SN-Netv1, figure 8); low-rank layers then update a random map.
    """

    stitched_only = True  # a stitch exported alone has no work for it

    def __init__(
        self, num_images: int = 100, ridge: float = 1e-8, method: str = 'least-squares'
    ) -> None:
        check(method in METHODS, 'StitchInitHook.method', method, METHODS)
        key = 'StitchInitHook.num_images'
        check(is_whole(num_images, 1), key, num_images, '1 or more')
        self.num_images, self.ridge, self.method = num_images, ridge, method

    def before_train(self, runner: Runner) -> None:
        """Initialise, and let a model average start from the same layers."""
        backbone = find_stitched_backbone(runner.model)
        if backbone.stitching_initialized:
            runner.logger.info('The weights hold stitching layers: these are kept.')
            return
        if self.method == 'kaiming':
            # They are random already, and equal on all ranks, as all weights are.
            backbone.stitching_initialized.fill_(True)
            runner.logger.info('The stitching layers start random: no least squares.')
        else:
            self._fit(runner, backbone)
        for hook in runner.hooks:
            if isinstance(hook, EMAHook):
                average = find_stitched_backbone(hook.ema_model)
                layers = backbone.stitching_layers.state_dict()
                average.stitching_layers.load_state_dict(layers)
                average.stitching_initialized.fill_(True)

    def _fit(self, runner: Runner, backbone: StitchedBackbone) -> None:
        start = time.time()
        # The images neither depend on what was drawn before nor change later draws.
        with isolated_rng(runner.seed), gathered(runner.model):
            batches = self._image_batches(runner)
            num_images = fit_stitching_layers(backbone, batches, self.ridge)
        runner.logger.info(
            f'Fitted {len(backbone.stitching_layers)} stitching layers by least '
            f'squares on {num_images} images per rank in {time.time() - start:.1f} s.'
        )

    def _image_batches(self, runner: Runner) -> Iterator[Tensor]:
        model = runner.model.module if is_model_wrapper(runner.model) else runner.model
        loader = runner.train_dataloader
        dataset = loader.dataset
        if self.num_images > len(dataset):
            runner.logger.warning(
                f'num_images={self.num_images} of StitchInitHook is more than the '
                f'{len(dataset)} training images: all of them are used.'
            )
        rng = np.random.default_rng(shared_seed(runner.seed))
        chosen = rng.permutation(len(dataset))[: self.num_images]
        ranks = get_world_size()
        allowed = f'{ranks} or more of {len(dataset)} training images, one per process'
        enough = len(chosen) >= ranks
        check(enough, 'StitchInitHook.num_images', self.num_images, allowed)
        own = chosen[get_rank() :: ranks].tolist()
        # One by one where a batch sampler groups images, which is against padding.
        size = loader.batch_size or 1
        for i in range(0, len(own), size):
            batch = loader.collate_fn([dataset[j] for j in own[i : i + size]])
            yield model.data_preprocessor(batch, training=True)['inputs']
