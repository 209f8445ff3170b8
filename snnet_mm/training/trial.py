"""A trial of a test on a few images, so that what would fail late fails first."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy, deepcopy

import torch
from mmengine.config import Config
from mmengine.dataset import ConcatDataset
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.registry import EVALUATOR, HOOKS, VISUALIZERS, DefaultScope
from mmengine.runner import Runner, autocast
from mmengine.structures import BaseDataElement
from torch import Tensor, nn
from torch.utils.data import DataLoader

from snnet_mm.costs.sizes import size_name
from snnet_mm.datasets import check_annotation_file, check_data_folders
from snnet_mm.datasets.data_checks import check_categories, leaf_datasets
from snnet_mm.evaluation.metric_buffers import MetricBuffers
from snnet_mm.models import unwrapped
from snnet_mm.tasks import check_saved
from snnet_mm.utils import check, isolated_rng, quiet_terminal

from .checking_hooks import check_heads

LOADER, DATA, METRICS = 'test_dataloader', 'test_dataloader.dataset', 'test_evaluator'
# In samples of tasks with classes.
CLASSES = 'gt_sem_seg', 'gt_label', 'gt_instances', 'pred_sem_seg', 'pred_label'


def try_test(cfg: Config, model: nn.Module) -> None:
    """Try the test that a config describes on a model; see :func:`try_images`.

    Metrics must compute values, by which stitches are ranked, and save no predictions.

    Raises:
        ValueError: If anything fails; the message names the config key.
    """
    for key in (LOADER, 'test_cfg', METRICS):
        check(cfg.get(key) is not None, key, None, 'a value, to test the budgets')
    check_data_folders(cfg.get(LOADER), LOADER)
    check_annotation_file(cfg.get(METRICS), METRICS)
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
        with _naming('the setup of the test', f'{LOADER}, {METRICS}'):
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
            check(not writes, f'{METRICS}.format_only', writes, expected)
        check_saved(evaluator, METRICS, number=2)
        MetricBuffers(evaluator, [0])
        _try_images(model, loader, evaluator, cfg.test_cfg.get('fp16', False))


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
    model = unwrapped(runner.model)
    # Retrievers prepare a gallery first; FlexibleRunners build their model later.
    if isinstance(model, nn.Module) and not hasattr(model, 'prototype'):
        with _naming('the setup of the test', f'{LOADER}, {METRICS}, test_cfg'):
            loop = runner.test_loop
        with isolated_rng(runner.seed):
            _try_images(model, loop.dataloader, loop.evaluator, loop.fp16)


@torch.no_grad()
def _try_images(
    model: nn.Module, loader: DataLoader, evaluator: Evaluator, fp16: bool
) -> None:
    dataset, evaluator = loader.dataset, copy(evaluator)
    evaluator.metrics = [copy(metric) for metric in evaluator.metrics]
    for metric in evaluator.metrics:
        metric.results = []
    check(len(dataset), DATA, 0, '1 image or more')
    for leaf in leaf_datasets(dataset):
        check_categories(leaf, DATA)
        if not isinstance(getattr(leaf, 'pipeline', None), NamingPipeline | None):
            leaf.pipeline = NamingPipeline(leaf.pipeline)
    training = model.training
    model.eval()
    with autocast(enabled=fp16):
        for indices in _chosen(loader):
            batch, samples = _predict(model, loader, [dataset[i] for i in indices])
            if any(name in samples[0] for name in CLASSES):
                _check_classes(model, getattr(dataset, 'metainfo', None) or {})
            labels = 'the metrics of the test, which need labels,'
            with _naming(labels, f'{METRICS}, {DATA}'):
                evaluator.process(samples, batch)
    model.train(training)


def _predict(
    model: nn.Module, loader: DataLoader, items: list
) -> tuple[dict, list[BaseDataElement]]:
    """Return a batch of samples, and its predictions."""
    inputs = [item.get('inputs') for item in items if isinstance(item, Mapping)]
    shapes = {tuple(x.shape) for x in inputs if isinstance(x, Tensor)}
    sizes = sorted(size_name(shape[-2:]) for shape in shapes)
    seen = f'the model, tested on images of shape {next(iter(shapes), "unknown")},'
    with _naming(seen, f'model, {DATA}.pipeline'):
        try:
            batch = loader.collate_fn(items)
            return batch, model.test_step(batch)
        except Exception:
            expected = f'1, or a pipeline that resizes images to one size, not {sizes}'
            check(len(sizes) < 2, f'{LOADER}.batch_size', len(items), expected)
            raise


@contextmanager
def _naming(what: str, keys: str) -> Iterator[None]:
    """Turn errors into a ValueError that names config keys, unless they name any.

    Missing files and packages stay as they are.
    """
    try:
        yield
    except (OSError, ImportError):
        raise
    except Exception as error:
        if '(config key' in str(error):
            raise
        text = str(error).strip().partition('\n')[0]
        raise ValueError(
            f'{what} raised {type(error).__name__}: {text} (config keys: {keys})'
        ) from error


class NamingPipeline:
    """Wraps a pipeline so that its errors name the image."""

    def __init__(self, pipeline: Callable[[dict], object]) -> None:
        self.pipeline = pipeline

    def __call__(self, info: dict) -> object:
        image = info.get('img_path', 'an image')
        with _naming(f'the pipeline of the test, for {image},', f'{DATA}.pipeline'):
            return self.pipeline(info)


def _chosen(loader: DataLoader) -> Iterator[list[int]]:
    """Yield the indices of the images of each batch of the trial."""
    dataset, size = loader.dataset, getattr(loader.batch_sampler, 'batch_size', 1)
    if isinstance(dataset, ConcatDataset):
        yield from ([i] for i in (0, *dataset.cumulative_sizes[:-1]))
    last = min(size, len(dataset)) - 1
    yield [0, *(n * (len(dataset) - 1) // last for n in range(1, last + 1))]


def _check_classes(model: nn.Module, meta: Mapping) -> None:
    """Raise if the classes of the test set, if listed, are not those of the model."""
    classes = meta.get('classes')
    if isinstance(classes, list | tuple):
        check_heads(model, meta, 'test')
        trained = (getattr(model, 'dataset_meta', None) or {}).get('classes') or classes
        right = list(trained) == list(classes) or sorted(trained) != sorted(classes)
        expected = f'the order used in training, {list(trained)}'
        check(right, f'{DATA}.metainfo.classes', list(classes), expected)
