"""A trial of a test on a few images, so that what would fail late fails first."""

import copy
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import torch
from mmengine.config import Config
from mmengine.dataset import BaseDataset, ConcatDataset
from mmengine.evaluator import Evaluator
from mmengine.registry import RUNNERS
from mmengine.runner import Runner, TestLoop, autocast
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from snnet_mm.costs.sizes import size_name
from snnet_mm.datasets import (
    check_annotation_file,
    check_data_folders,
    naming_empty_data,
)
from snnet_mm.datasets.folder_check import EMPTY
from snnet_mm.evaluation import as_picture, draw_sample
from snnet_mm.evaluation.broken_images import name_broken_images
from snnet_mm.evaluation.metric_buffers import MetricBuffers
from snnet_mm.models import unwrapped
from snnet_mm.tasks import check_saved
from snnet_mm.utils import check, isolated_rng, suggesting_types
from snnet_mm.utils.configs import keep_local_backends

from .checking_hooks import check_heads

LOADER, DATA, EVALUATOR = 'test_dataloader', 'test_dataloader.dataset', 'test_evaluator'
# Images whose sizes are read for a batch of several sizes.
NUM_SIZES = 200
# In samples of tasks with classes.
CLASSES = 'gt_sem_seg', 'gt_label', 'gt_instances', 'pred_sem_seg', 'pred_label'
# What pipelines and metrics call labels.
LABELS = re.compile(r"gt_\w+|seg_map_path|depth_map_path|'instances'")


def try_test(cfg: Config, model: nn.Module) -> None:
    """Try the test that a config describes on a model; see :func:`try_images`.

    Results of several stitches are to be ranked and drawn: metrics must measure, and
    save no predictions.

    Raises:
        ValueError: If anything fails; the message names the config key.
    """
    for key in (LOADER, 'test_cfg', EVALUATOR):
        check(cfg.get(key) is not None, key, None, 'one, to test all budgets with')
    check_data_folders(cfg.get(LOADER), LOADER)
    check_annotation_file(cfg.get(EVALUATOR), EVALUATOR)
    with TemporaryDirectory() as folder, isolated_rng(0):
        cfg = copy.deepcopy(cfg)
        # mmengine would give later runners this visualizer, by its name.
        (cfg.get('visualizer') or {}).pop('name', None)
        keep_local_backends(cfg)
        cfg.work_dir = cfg.experiment_name = folder
        cfg.log_level, cfg.load_from, cfg.resume = 'ERROR', None, False
        fp16 = {k: v for k, v in cfg.test_cfg.items() if k == 'fp16'}
        cfg.test_cfg = dict(type='TestLoop', **fp16)
        kind = RUNNERS.get(cfg.get('runner_type', 'Runner'))
        trial = type(kind.__name__, (kind,), dict(build_model=lambda *_: model))
        with _naming('the setup', 'custom_hooks, default_hooks'), suggesting_types():
            runner = trial.from_cfg(cfg)
        with naming_empty_data(LOADER):
            evaluator = _built_loop(runner).evaluator
        for metric in evaluator.metrics:
            writes = getattr(metric, 'format_only', False)
            wanted = 'False, as results of budgets are compared'
            check(not writes, f'{EVALUATOR}.format_only', writes, wanted)
        check_saved(evaluator, EVALUATOR, number=2)
        MetricBuffers(evaluator, [0])
        try_images(runner, Path(folder))


def try_images(runner: Runner, drawn: Path | None = None) -> None:
    """Pass a few test images through pipeline, model and metrics of a runner.

    They are the first image of every data set that is concatenated, and one batch, of
    images of different sizes if there are any. Neither metrics nor random numbers
    change.

    Args:
        runner: A runner with a test loop.
        drawn: Folder for a drawn prediction. Default: nothing is drawn.

    Raises:
        ValueError: If anything fails; the message names the config key.
    """
    model = unwrapped(runner.model)
    # Retrievers prepare a gallery first; FlexibleRunners build their model later.
    if not isinstance(model, nn.Module) or hasattr(model, 'prototype'):
        return
    loop = _built_loop(runner)
    loader, evaluator = loop.dataloader, copy.copy(loop.evaluator)
    evaluator.metrics = [copy.copy(metric) for metric in evaluator.metrics]
    for metric in evaluator.metrics:
        metric.results = []
    check(len(loader.dataset), DATA, 0, '1 image or more')
    _check_annotations(loader.dataset, evaluator)
    name_broken_images(loader.dataset)
    training = model.training
    model.eval()
    with torch.no_grad(), isolated_rng(runner.seed), autocast(enabled=loop.fp16):
        for indices in _chosen(loader):
            batch, samples = _predicted(model, loader, indices)
            if any(name in samples[0] for name in CLASSES):
                _check_classes(model, loader.dataset)
            with _naming('the metrics', f'{EVALUATOR}, {DATA}'):
                evaluator.process(samples, batch)
        if drawn is not None:
            with _naming('the visualizer', f'visualizer, {DATA}.metainfo'):
                _draw(runner, batch['inputs'][0], samples[0], drawn)
    model.train(training)


def _built_loop(runner: Runner) -> TestLoop:
    with _naming('the setup', f'{LOADER}, {EVALUATOR}, test_cfg'), suggesting_types():
        return runner.test_loop


def _predicted(
    model: nn.Module, loader: DataLoader, indices: list[int]
) -> tuple[dict, list]:
    """Return a batch and its predictions."""
    with _naming('the pipeline', f'{DATA}.pipeline'):
        items = [loader.dataset[i] for i in indices]
    inputs = [item.get('inputs') for item in items if isinstance(item, Mapping)]
    shapes = {tuple(x.shape) for x in inputs if isinstance(x, Tensor)}
    sizes = sorted(size_name(shape[-2:]) for shape in shapes)
    try:
        batch = loader.collate_fn(items)
        return batch, model.test_step(batch)
    except Exception as error:
        one = '1, or a pipeline that gives one size: its images have '
        one += ' and '.join(sizes)
        if len(sizes) > 1:
            check(False, f'{LOADER}.batch_size', len(indices), one)
        seen = f'the model, for images of shape {next(iter(shapes), "unknown")},'
        with _naming(seen, f'model, {DATA}.pipeline'):
            raise error


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
        text = str(error).strip().partition('\n')[0]
        if found := LABELS.search(str(error)):
            labels = found[0].strip("'")
            raise ValueError(
                f'{what} of the test found no labels ({labels}): scores need a '
                f'labelled test set, and LoadAnnotations in its pipeline (config keys: '
                f'{keys}); tools/image_demo.py predicts images without labels'
            ) from error
        if 'config key' in str(error) or EMPTY in str(error):
            raise
        kind = type(error).__name__
        raise ValueError(
            f'{what} of the test raised {kind}: {text} (config keys: {keys})'
        ) from error


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
        check(right, f'{EVALUATOR}.dataset_prefixes', list(prefixes), wanted)
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
        check(right, f'{EVALUATOR}.ann_file', metric, wanted)


def _draw(runner: Runner, image: Tensor, sample: object, folder: Path) -> None:
    pixels = as_picture(image.numpy().transpose(1, 2, 0))[..., ::-1].copy()
    height, width = sample.get('ori_shape', pixels.shape[:2])
    pixels = cv2.resize(pixels, (width, height))
    runner.visualizer.dataset_meta = runner.test_loop.dataloader.dataset.metainfo
    file = str(folder / 'drawn.png')
    draw_sample(runner.visualizer, 'drawn', pixels, sample, out_file=file)
