"""A trial of a test on a few images, so that what would fail late fails first."""

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import copy, deepcopy
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import torch
from mmengine.config import Config
from mmengine.dataset import BaseDataset, ConcatDataset
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.registry import EVALUATOR, HOOKS, VISUALIZERS, DefaultScope
from mmengine.runner import Runner, autocast
from mmengine.visualization import Visualizer
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from snnet_mm.costs.sizes import size_name
from snnet_mm.datasets import check_annotation_file, check_data_folders
from snnet_mm.evaluation import as_picture, draw_sample
from snnet_mm.evaluation.metric_buffers import MetricBuffers
from snnet_mm.models import unwrapped
from snnet_mm.tasks import check_saved
from snnet_mm.utils import check, explain_builds, isolated_rng, quiet_terminal

from .checking_hooks import check_heads

LOADER, DATA, METRICS = 'test_dataloader', 'test_dataloader.dataset', 'test_evaluator'
# Images whose sizes are read for a batch of several sizes.
NUM_SIZES = 200
# In samples of tasks with classes.
CLASSES = 'gt_sem_seg', 'gt_label', 'gt_instances', 'pred_sem_seg', 'pred_label'


def try_test(cfg: Config, model: nn.Module) -> None:
    """Try the test that a config describes on a model; see :func:`try_images`.

    Results of several stitches are to be ranked and drawn: metrics must measure, and
    save no predictions.

    Raises:
        ValueError: If anything fails; the message names the config key.
    """
    for key in (LOADER, 'test_cfg', METRICS):
        check(cfg.get(key) is not None, key, None, 'a value, as all budgets are tested')
    check_data_folders(cfg.get(LOADER), LOADER)
    check_annotation_file(cfg.get(METRICS), METRICS)
    cfg = deepcopy(cfg)
    hooks = [
        *(cfg.get('default_hooks') or {}).values(),
        *(cfg.get('custom_hooks') or ()),
    ]
    scope = cfg.get('default_scope') or 'mmengine'
    with isolated_rng(0), DefaultScope.overwrite_default_scope(scope):
        with _naming('the setup of the test', f'{LOADER}, {METRICS}'), explain_builds():
            visualizer = _visualizer_of(cfg)  # which hooks ask for
            for hook in hooks:
                if isinstance(hook, Mapping):
                    HOOKS.build({k: v for k, v in hook.items() if k != 'priority'})
            loader = Runner.build_dataloader(cfg.test_dataloader, seed=0)
            evaluator = evaluator_of(cfg.test_evaluator)
        evaluator.dataset_meta = getattr(loader.dataset, 'metainfo', {})
        for metric in evaluator.metrics:
            writes = getattr(metric, 'format_only', False)
            wanted = 'False, as results of budgets are compared'
            check(not writes, f'{METRICS}.format_only', writes, wanted)
        check_saved(evaluator, METRICS, number=2)
        MetricBuffers(evaluator, [0])
        fp16 = cfg.test_cfg.get('fp16', False)
        batch, sample = _try_images(model, loader, evaluator, fp16)
        with _naming('the visualizer of the test', f'visualizer, {DATA}.metainfo'):
            visualizer.dataset_meta = loader.dataset.metainfo
            _draw(visualizer, batch['inputs'][0], sample)


def evaluator_of(config: Mapping | list) -> Evaluator:
    """Build the evaluator of a config, as the ``build_evaluator`` of runners does."""
    # mmengine warns of every metric without a prefix.
    with quiet_terminal(MMLogger.get_current_instance(), logging.ERROR):
        if isinstance(config, Mapping) and 'metrics' in config:
            return EVALUATOR.build(dict(dict(type='Evaluator'), **config))
        return Evaluator(config)


def try_images(runner: Runner) -> None:
    """Pass a few test images through pipeline, model and metrics of a runner.

    They are the first image of every data set that is concatenated, and one batch, of
    images of different sizes if there are any. Neither metrics nor random numbers
    change. Later errors of the pipeline name the image.

    Raises:
        ValueError: If anything fails; the message names the config key.
    """
    model = unwrapped(runner.model)
    # Retrievers prepare a gallery first; FlexibleRunners build their model later.
    if isinstance(model, nn.Module) and not hasattr(model, 'prototype'):
        with (
            _naming('the setup of the test', f'{LOADER}, {METRICS}, test_cfg'),
            explain_builds(),
        ):
            loop = runner.test_loop
        with isolated_rng(runner.seed):
            _try_images(model, loop.dataloader, loop.evaluator, loop.fp16)


@torch.no_grad()
def _try_images(
    model: nn.Module, loader: DataLoader, evaluator: Evaluator, fp16: bool
) -> tuple[dict, object]:
    """Try a few images; return the last batch, and the prediction of its first one."""
    evaluator = copy(evaluator)
    evaluator.metrics = [copy(metric) for metric in evaluator.metrics]
    for metric in evaluator.metrics:
        metric.results = []
    check(len(loader.dataset), DATA, 0, '1 image or more')
    _check_annotations(loader.dataset, evaluator)
    _name_images(loader.dataset)
    training = model.training
    model.eval()
    with autocast(enabled=fp16):
        for indices in _chosen(loader):
            batch, samples = _predicted(model, loader, indices)
            if any(name in samples[0] for name in CLASSES):
                _check_classes(model, loader.dataset)
            with _naming(
                'the metrics of the test, which need labels,', f'{METRICS}, {DATA}'
            ):
                evaluator.process(samples, batch)
    model.train(training)
    return batch, samples[0]


def _predicted(
    model: nn.Module, loader: DataLoader, indices: list[int]
) -> tuple[dict, list]:
    """Return a batch and its predictions."""
    items = [loader.dataset[i] for i in indices]
    inputs = [item.get('inputs') for item in items if isinstance(item, Mapping)]
    shapes = {tuple(x.shape) for x in inputs if isinstance(x, Tensor)}
    sizes = sorted(size_name(shape[-2:]) for shape in shapes)
    one = f'1, or a pipeline that gives one size: images have {" and ".join(sizes)}'
    seen = f'the model, tested on images of shape {next(iter(shapes), "unknown")},'
    with _naming(seen, f'model, {DATA}.pipeline'):
        try:
            batch = loader.collate_fn(items)
            return batch, model.test_step(batch)
        except Exception:
            check(len(sizes) < 2, f'{LOADER}.batch_size', len(indices), one)
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
    """Wraps a pipeline so that its errors name the image.

    Args:
        pipeline: The wrapped pipeline.
    """

    def __init__(self, pipeline: Callable[[dict], object]) -> None:
        self.pipeline = pipeline

    def __call__(self, info: dict) -> object:
        image = info.get('img_path', 'an image')
        with _naming(f'the pipeline of the test, for {image},', f'{DATA}.pipeline'):
            return self.pipeline(info)


def _name_images(dataset: Dataset) -> None:
    """Make a data set, and those inside of it, name images that fail to load."""
    for leaf in _leaves(dataset):
        if not isinstance(getattr(leaf, 'pipeline', None), NamingPipeline | None):
            leaf.pipeline = NamingPipeline(leaf.pipeline)


def _chosen(loader: DataLoader) -> Iterator[list[int]]:
    """Yield the indices of the images of each batch of the trial."""
    dataset, size = loader.dataset, getattr(loader.batch_sampler, 'batch_size', 1)
    if isinstance(dataset, ConcatDataset):
        yield from ([i] for i in (0, *dataset.cumulative_sizes[:-1]))
    number = min(size, len(dataset))
    if size == 1 or not isinstance(dataset, BaseDataset):
        yield [*range(number)]
        return
    by_size: dict[tuple, int] = {}
    total = len(dataset)
    for n in range(min(total, NUM_SIZES)):
        i = n * total // min(total, NUM_SIZES)
        path = BaseDataset.get_data_info(dataset, i).get('img_path')
        if path is not None:  # what cannot be read is named where it is loaded
            with suppress(OSError), Image.open(path) as image:
                by_size.setdefault(image.size, i)
    yield [*dict.fromkeys([*by_size.values(), *range(number)])][:number]


def _leaves(dataset: Dataset) -> list[Dataset]:
    """Return the data sets inside of wrappers."""
    inner = getattr(dataset, 'datasets', None) or [getattr(dataset, 'dataset', None)]
    if inner == [None]:
        return [dataset]
    return [leaf for part in inner for leaf in _leaves(part)]


def _check_classes(model: nn.Module, dataset: Dataset) -> None:
    """Raise if the classes of the test set are not those of the model."""
    meta = getattr(dataset, 'metainfo', None) or {}
    classes = meta.get('classes')
    if not isinstance(classes, list | tuple):
        return
    things = meta.get('thing_classes') or classes
    check_heads(model, {len(classes), len(things)}, 'test')
    trained = (getattr(model, 'dataset_meta', None) or {}).get('classes') or classes
    same = sorted(trained) == sorted(classes)
    wanted = f'the order of the training, {list(trained)}'
    right = not same or list(trained) == list(classes)
    check(right, f'{DATA}.metainfo.classes', list(classes), wanted)


def _check_annotations(dataset: Dataset, evaluator: Evaluator) -> None:
    """Raise if annotations in COCO's format lack classes or images of the test set."""
    for leaf in _leaves(dataset):
        classes = leaf.metainfo.get('classes') if hasattr(leaf, 'cat_ids') else None
        if classes is not None:
            found = f'names in {leaf.ann_file}, which has {len(leaf.cat_ids)} of them'
            right = len(leaf.cat_ids) == len(classes)
            check(right, f'{DATA}.metainfo.classes', list(classes), found)
    parts, prefixes = [dataset], getattr(evaluator, 'dataset_prefixes', None)
    if prefixes is not None:
        parts = getattr(dataset, 'datasets', parts)
        wanted = f'one for each of {len(parts)} data sets of a ConcatDataset'
        right = len(parts) == len(prefixes) == len(evaluator.metrics)
        right &= isinstance(dataset, ConcatDataset)
        check(right, f'{METRICS}.dataset_prefixes', list(prefixes), wanted)
    for n, metric in enumerate(evaluator.metrics):
        images = getattr(getattr(metric, '_coco_api', None), 'imgs', None)
        part = parts[n if prefixes is not None else 0]
        for leaf in _leaves(part) if images else ():
            _check_images(leaf, images, type(metric).__name__)


def _check_images(leaf: Dataset, images: Mapping, metric: str) -> None:
    for i in range(len(leaf)) if isinstance(leaf, BaseDataset) else ():
        info = BaseDataset.get_data_info(leaf, i)
        path, known = info.get('img_path'), images.get(info.get('img_id'), {})
        name = known.get('file_name', path)
        right = bool(known) and Path(name).name == Path(path).name
        wanted = f"annotations of all test images: {metric}'s lack {path}; several "
        wanted += 'data sets need a metric each, in a MultiDatasetsEvaluator'
        check(right, f'{METRICS}.ann_file', metric, wanted)


def _visualizer_of(cfg: Config) -> Visualizer:
    """Build the visualizer of a config, without loggers, which may not be installed."""
    # mmengine would give later runners this visualizer, by its name.
    name = f'trial_{time.time_ns()}'
    config = dict(cfg.get('visualizer') or dict(type='Visualizer'))
    return VISUALIZERS.build(config | dict(name=name, vis_backends=None))


def _draw(visualizer: Visualizer, image: Tensor, sample: object) -> None:
    pixels = as_picture(image.numpy().transpose(1, 2, 0))[..., ::-1].copy()
    height, width = sample.get('ori_shape', pixels.shape[:2])
    pixels = cv2.resize(pixels, (width, height))
    with TemporaryDirectory() as folder:
        file = str(Path(folder, 'drawn.png'))
        draw_sample(visualizer, 'drawn', pixels, sample, out_file=file)
