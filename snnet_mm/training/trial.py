"""A trial on a few images, so that what would fail late fails first."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy
from dataclasses import dataclass

import torch
from mmengine.config import Config
from mmengine.dataset import ConcatDataset
from mmengine.evaluator import Evaluator
from mmengine.hooks import CheckpointHook
from mmengine.logging import MMLogger
from mmengine.model import is_model_wrapper
from mmengine.registry import EVALUATOR, HOOKS, VISUALIZERS, DefaultScope
from mmengine.runner import Runner, ValLoop, autocast
from mmengine.structures import BaseDataElement
from torch import Tensor, nn
from torch.utils.data import DataLoader

from snnet_mm.costs.sizes import size_name
from snnet_mm.datasets import check_annotation_file, check_data_folders
from snnet_mm.datasets.data_checks import check_categories, leaf_datasets
from snnet_mm.evaluation import StitchValLoop
from snnet_mm.evaluation.metric_buffers import (
    MetricBuffers,
    numbers_of,
    values_of_few,
)
from snnet_mm.models import explaining_out_of_memory, unwrapped
from snnet_mm.tasks import check_saved
from snnet_mm.utils import check, isolated_rng, quiet_terminal

from .label_checks import check_heads

# In samples of tasks with classes.
CLASSES = 'gt_sem_seg', 'gt_label', 'gt_instances', 'pred_sem_seg', 'pred_label'


def try_test(cfg: Config, model: nn.Module) -> None:
    """Try the test that a config describes on a model; see :func:`try_images`.

    Metrics must compute numbers, by which stitches are ranked, and save no predictions.

    Raises:
        ValueError: If anything fails; the message names the config key.
    """
    loader_key, metrics_key = 'test_dataloader', 'test_evaluator'
    for key in (loader_key, 'test_cfg', metrics_key):
        check(cfg.get(key) is not None, key, None, 'a value, to test the budgets')
    check_data_folders(cfg.get(loader_key), loader_key)
    check_annotation_file(cfg.get(metrics_key), metrics_key)
    cfg = deepcopy(cfg)
    hooks = [
        *(cfg.get('default_hooks') or {}).values(),
        *(cfg.get('custom_hooks') or ()),
    ]
    visualizer = dict(cfg.get('visualizer') or dict(type='Visualizer'))
    # A unique name, as mmengine gives later runners a visualizer of their name.
    visualizer.update(name=f'trial_{time.time_ns()}', vis_backends=None)
    scope = cfg.get('default_scope') or 'mmengine'
    with isolated_rng(0), DefaultScope.overwrite_default_scope(scope):
        with _naming('the setup of the test', f'{loader_key}, {metrics_key}'):
            VISUALIZERS.build(visualizer)  # which hooks ask for
            for hook in hooks:
                if isinstance(hook, Mapping):
                    HOOKS.build({k: v for k, v in hook.items() if k != 'priority'})
            loader = Runner.build_dataloader(cfg.test_dataloader, seed=0)
            evaluator = evaluator_of(cfg.test_evaluator)
        evaluator.dataset_meta = getattr(loader.dataset, 'metainfo', {})
        for metric in evaluator.metrics:
            writes = getattr(metric, 'format_only', False)
            expected = 'False, to compare the results of budgets'
            check(not writes, f'{metrics_key}.format_only', writes, expected)
        check_saved(evaluator, metrics_key, number=2)
        MetricBuffers(evaluator, [0])
        trial = Trial('test', loader, evaluator, cfg.test_cfg.get('fp16', False))
        values = trial.run(model)
    if values is not None:
        kinds = [type(metric).__name__ for metric in evaluator.metrics]
        expected = 'a metric with a number as its value, to rank budgets by'
        check(numbers_of(evaluator, values), metrics_key, kinds, expected)


def evaluator_of(config: Mapping | list) -> Evaluator:
    """Build the evaluator of a config, as the ``build_evaluator`` of runners does."""
    # mmengine warns of every metric without a prefix.
    with quiet_terminal(MMLogger.get_current_instance(), logging.ERROR):
        if isinstance(config, Mapping) and 'metrics' in config:
            return EVALUATOR.build(dict(dict(type='Evaluator'), **config))
        return Evaluator(config)


def try_images(runner: Runner) -> None:
    """Pass a few test images through pipeline, model and metrics of a runner.

    They are the first image of every data set that is concatenated, and one batch,
    evenly spread. Neither metrics nor random numbers change. Later errors of the
    pipeline name the image.

    Raises:
        ValueError: If anything fails; the message names the config key.
    """
    # FlexibleRunners build their model later.
    if isinstance(runner.model, nn.Module):
        keys = 'test_dataloader, test_evaluator, test_cfg'
        with _naming('the setup of the test', keys):
            loop = runner.test_loop
        with isolated_rng(runner.seed):
            trial = Trial('test', loop.dataloader, loop.evaluator, loop.fp16)
            trial.run(runner.model)


def try_validation(runner: Runner) -> None:
    """Pass a few images through the validation of a training; see :func:`try_images`.

    Metrics that ``save_best`` names must be among the results. Validation loops of
    others are skipped, as they may do anything.
    """
    loop = runner.val_loop
    if type(loop) not in (ValLoop, StitchValLoop):
        return
    with isolated_rng(runner.seed):
        trial = Trial('val', loop.dataloader, loop.evaluator, loop.fp16)
        values = trial.run(runner.model)
    for hook in runner.hooks:
        if values and isinstance(hook, CheckpointHook) and hook.save_best:
            for name in {*hook.key_indicators} - {'auto'}:
                right = name in values or name.startswith('stitch_')
                key = 'default_hooks.checkpoint.save_best'
                check(right, key, name, list(values))


@dataclass
class Trial:
    """A few images of a data loader, and the evaluator of their predictions.

    Attributes:
        phase: ``'val'`` or ``'test'``, by which config keys begin.
        loader: Loader of the images.
        evaluator: Evaluator, whose metrics stay as they are.
        fp16: Whether the model predicts in half precision.
    """

    phase: str
    loader: DataLoader
    evaluator: Evaluator
    fp16: bool = False

    @property
    def data_key(self) -> str:
        """The config key of the data set."""
        return f'{self.phase}_dataloader.dataset'

    @torch.no_grad()
    def run(self, model: nn.Module) -> dict[str, object] | None:
        """Predict the images as loops do; return metrics if these images suffice."""
        # As mm's DDP forwards test_step. A model of test-time augmentation stays.
        model = model.module if is_model_wrapper(model) else model
        inner = unwrapped(model)
        if hasattr(inner, 'prototype'):  # retrievers prepare a gallery first
            return None
        dataset, evaluator = self.loader.dataset, copy(self.evaluator)
        evaluator.metrics = [copy(metric) for metric in evaluator.metrics]
        for metric in evaluator.metrics:
            metric.results = []
        check(len(dataset), self.data_key, 0, '1 image or more')
        for leaf in leaf_datasets(dataset):
            check_categories(leaf, self.data_key)
            if not isinstance(getattr(leaf, 'pipeline', None), NamingPipeline | None):
                leaf.pipeline = NamingPipeline(leaf.pipeline, self.data_key)
        training = model.training
        model.eval()
        keys = f'{self.phase}_evaluator, {self.data_key}'
        metrics = f'the metrics of the {self.phase}'
        with autocast(enabled=self.fp16):
            for indices in _chosen(self.loader):
                batch, samples = self._predict(model, [dataset[i] for i in indices])
                if any(name in samples[0] for name in CLASSES):
                    self._check_classes(inner)
                with _naming(f'{metrics}, which need labels,', keys):
                    evaluator.process(samples, batch)
        model.train(training)
        with _naming(metrics, keys):
            return values_of_few(evaluator)

    def _predict(
        self, model: nn.Module, items: list
    ) -> tuple[dict, list[BaseDataElement]]:
        """Return a batch of samples, and its predictions."""
        inputs = [item.get('inputs') for item in items if isinstance(item, Mapping)]
        shapes = {tuple(x.shape) for x in inputs if isinstance(x, Tensor)}
        sizes = sorted(size_name(shape[-2:]) for shape in shapes)
        seen = f'images of shape {next(iter(shapes), "unknown")}'
        keys = f'model, {self.data_key}.pipeline'
        step = f'the model, in the {self.phase} of {seen},'
        with _naming(step, keys), explaining_out_of_memory(model, len(items)):
            try:
                batch = self.loader.collate_fn(items)
                return batch, getattr(model, f'{self.phase}_step')(batch)
            except Exception:
                expected = '1, or a pipeline that resizes images to one size, not '
                key = f'{self.phase}_dataloader.batch_size'
                check(len(sizes) < 2, key, len(items), f'{expected}{sizes}')
                raise

    def _check_classes(self, model: nn.Module) -> None:
        """Raise if the classes of the data, if listed, are not those of the model."""
        meta = getattr(self.loader.dataset, 'metainfo', None) or {}
        classes = meta.get('classes')
        if isinstance(classes, list | tuple):
            check_heads(model, meta, self.phase)
            trained = getattr(model, 'dataset_meta', None) or {}
            trained = trained.get('classes') or classes
            right = [*trained] == [*classes] or sorted(trained) != sorted(classes)
            expected = f'the order used in training, {list(trained)}'
            check(right, f'{self.data_key}.metainfo.classes', list(classes), expected)


@contextmanager
def _naming(what: str, keys: str) -> Iterator[None]:
    """Turn errors into a ValueError that names config keys, unless they name a setting.

    Missing files and packages stay as they are.
    """
    try:
        yield
    except (OSError, ImportError):
        raise
    except Exception as error:
        if '(config key' in str(error) or '(option' in str(error):
            raise
        text = str(error).strip().partition('\n')[0]
        raise ValueError(
            f'{what} raised {type(error).__name__}: {text} (config keys: {keys})'
        ) from error


class NamingPipeline:
    """Wraps the pipeline of a data set so that its errors name image and key."""

    def __init__(self, pipeline: Callable[[dict], object], key: str) -> None:
        self.pipeline, self.key = pipeline, key

    def __call__(self, info: dict) -> object:
        image = info.get('img_path', 'an image')
        with _naming(f'the pipeline, for {image},', f'{self.key}.pipeline'):
            return self.pipeline(info)


def _chosen(loader: DataLoader) -> Iterator[list[int]]:
    """Yield the indices of the images of each batch of the trial."""
    dataset, size = loader.dataset, getattr(loader.batch_sampler, 'batch_size', 1)
    if isinstance(dataset, ConcatDataset):
        yield from ([i] for i in (0, *dataset.cumulative_sizes[:-1]))
    last = min(size, len(dataset)) - 1
    yield [0, *(n * (len(dataset) - 1) // last for n in range(1, last + 1))]
