"""Metrics of exported files, compared with the same stitch in PyTorch.

Files are used as their users do: graphs by the runtime, on image files, checkpoints by
mm.
"""

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from statistics import median

import numpy as np
import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger, print_log
from mmengine.registry import TRANSFORMS
from mmengine.runner import Runner
from mmengine.structures import BaseDataElement, InstanceData, PixelData
from torch import nn
from torch.utils.data import DataLoader

from snnet_mm.costs import size_name
from snnet_mm.datasets import check_data_folders, spread
from snnet_mm.datasets.batches import DataSamples, batches_in_order, prepare
from snnet_mm.evaluation.metric_buffers import MetricBuffers
from snnet_mm.runtime import Detections, Panoptic
from snnet_mm.runtime.image_io import read_image
from snnet_mm.runtime.steps import Steps
from snnet_mm.stitching import HIGHER, key_metric, metric_directions
from snnet_mm.tasks import check_partial
from snnet_mm.tasks.base import as_tuple
from snnet_mm.training.trial import evaluator_of
from snnet_mm.utils import check, refusal

from .formats import FORMATS, ExportRequest, Written
from .normalization import pipeline_of
from .single import read_single

PYTORCH = 'pytorch'

WARM_UP = 2  # first calls, whose times are discarded
Predict = Callable[[dict, DataSamples, Sequence[np.ndarray]], DataSamples]


@torch.no_grad()
def evaluate(
    cfg: Config,
    model: nn.Module,
    files: Sequence[Written],
    steps: Steps,
    request: ExportRequest,
) -> dict[str, float]:
    """Evaluate a model of a single stitch, and its files, alternating per batch.

    ``steps`` are those of the files' graphs. The files' ``verified`` entries are set,
    and the model's metrics are returned. Milliseconds are those from one image to its
    prediction, with torch's number of threads; in PyTorch without the pipeline.

    Raises:
        ValueError: If the direction of the metric is unknown.
    """
    loader, evaluator = _data(cfg, request.verify_on, request.limit)
    times: dict[str, list[float]] = defaultdict(list)
    predictors = {PYTORCH: _by_mm(model, times[PYTORCH])}
    graphs = [file for file in files if FORMATS[file.format].is_graph]
    for file in files:
        own = times[name := file.path.name]
        if file in graphs:
            predictors[name] = _by_runtime(file, steps, own)
        else:
            predictors[name] = _by_mm(read_single(file.path)[1], own)
    buffers, resized = MetricBuffers(evaluator, tuple(predictors)), 0
    pipeline = pipeline_of(cfg) or [dict(type='LoadImageFromFile')]
    load = TRANSFORMS.build(pipeline[0])
    for indices, batch in batches_in_order(loader):
        images, samples = [], ()
        if graphs:
            infos = map(loader.dataset.get_data_info, indices)
            images = [_read(info, steps.channels, load) for info in infos]
            resized += sum(not steps.fits(image.shape[:2]) for image in images)
        for name, predict in predictors.items():
            found = predict(batch, samples, images)
            samples = samples or found  # PyTorch's, which hold the ground truth
            buffers.add(name, found, batch)
        buffers.note(samples)
    scores = buffers.scores(MMLogger.get_current_instance(), len(loader.dataset))
    ms = {name: median(all[WARM_UP:] or all) for name, all in times.items()}
    pytorch = scores[PYTORCH]
    metric = key_metric(pytorch.metrics)
    direction = metric_directions(pytorch.metrics).get(metric)
    check(direction, '--verify-on', metric, 'a metric whose direction is known')
    for file in files:
        own, interval = scores[file.path.name], None
        if own.images and pytorch.images:
            interval = own.images.difference_from(pytorch.images)
            interval = interval if all(map(math.isfinite, interval)) else None
        values = dict(value=own.metrics[metric], pytorch=pytorch.metrics[metric])
        values['lost'] = lost_points(*values.values(), direction == HIGHER)
        file.verified = dict(
            on=request.verify_on,
            images=own.num_images,
            resized=resized if file in graphs else 0,
            metric=metric,
            **dict.fromkeys(values) | finite(values),
            interval=interval,
            ms=ms[file.path.name],
            pytorch_ms=ms[PYTORCH],
            metrics=finite(own.metrics),
        )
    return pytorch.metrics


def _data(cfg: Config, mode: str, limit: int | None) -> tuple[DataLoader, Evaluator]:
    settings, metric = cfg.get(f'{mode}_dataloader'), cfg.get(f'{mode}_evaluator')
    check(settings, '--verify-on', mode, f'a config with {mode}_dataloader')
    check_data_folders(settings, f'{mode}_dataloader')
    # Workers would compete with the timed network for cores.
    settings = dict(settings, num_workers=0, persistent_workers=False)
    loader = Runner.build_dataloader(deepcopy(settings), seed=0)
    evaluator = evaluator_of(deepcopy(metric))
    evaluator.dataset_meta = getattr(loader.dataset, 'metainfo', {})
    if limit is not None:
        check_partial(evaluator, '--limit')
        loader = spread(loader, limit)
    return loader, evaluator


def _read(info: Mapping, channels: int, load: Callable) -> np.ndarray:
    """Read an image of a data set as the runtime's users do.

    If it is no local file, the data set or the pipeline loads it.
    """
    path = str(info.get('img_path'))
    if not Path(path).is_file():
        image = info['img'] if 'img' in info else load(dict(info))['img']
        image = image.reshape(*image.shape[:2], channels)
        return image[..., ::-1] if channels == 3 else image
    try:
        return read_image(path, channels)
    except (OSError, ValueError) as error:
        expected = f'images that the runtime reads ({error})'
        raise refusal('--verify-on', path, expected) from error


def _by_mm(model: nn.Module, times: list[float]) -> Predict:
    """Return a predictor of batches of mm's data loader."""

    def predict(batch: dict, *_: object) -> DataSamples:
        run = prepare(model, batch)
        begin = time.perf_counter()
        samples = run()
        times.append(1e3 * (time.perf_counter() - begin) / len(samples))
        return samples

    return predict


def _by_runtime(file: Written, steps: Steps, times: list[float]) -> Predict:
    """Return a predictor of images as read, in samples that mm has predicted."""
    graph = file.open()

    def run(pixels: np.ndarray) -> list[np.ndarray]:
        return [x.numpy() for x in as_tuple(graph(torch.from_numpy(pixels)))]

    def predict(
        _: dict, samples: DataSamples, images: Sequence[np.ndarray]
    ) -> DataSamples:
        found = []
        for image in images:
            steps.check_image(image)
            begin = time.perf_counter()
            found += steps.predict(run, [image])
            times.append(1e3 * (time.perf_counter() - begin))
        return [with_prediction(*pair) for pair in zip(samples, found, strict=True)]

    return predict


def with_prediction(
    sample: BaseDataElement, found: np.ndarray | Detections | Panoptic
) -> BaseDataElement:
    """Return mm's sample of an image with a prediction of the runtime in place of mm's.

    It has the fields that metrics read: the inverse of
    :func:`~snnet_mm.inferencers.predictions_of`.
    """
    sample = sample.new()
    for key in ('seg_logits', 'pred_label'):  # of mm's prediction
        sample.pop(key, None)
    if isinstance(found, Panoptic):
        segments, found = found
        data = torch.from_numpy(segments)[None]
        sample.pred_panoptic_seg = PixelData(sem_seg=data)
    if isinstance(found, Detections):
        boxes, scores, labels, masks = found
        objects = InstanceData(bboxes=boxes, scores=scores, labels=labels)
        sample.pred_instances = objects.to_tensor()
        if masks is not None:
            sample.pred_instances.masks = torch.from_numpy(masks)
    elif found is not None and found.ndim == 1:
        sample.set_field(torch.from_numpy(found), 'pred_score')
    elif found is not None:
        key = 'pred_depth_map' if found.dtype.kind == 'f' else 'pred_sem_seg'
        sample.set_field(PixelData(data=torch.from_numpy(found)[None]), key)
    return sample


def lost_points(value: float, wanted: float, higher_is_better: bool) -> float:
    """Return the loss of a metric in points of 100, or of an error in percent.

    Metrics from 0 to 1 are shares. NaN is an infinite loss unless ``wanted`` is NaN.
    """
    if math.isnan(value):
        return 0.0 if math.isnan(wanted) else math.inf
    if higher_is_better:
        return (wanted - value) * (100 if max(value, wanted) <= 1 else 1)
    return 100 * (value - wanted) / max(abs(wanted), 1e-9)


def tolerance_for(lost: float) -> float:
    """Return the smallest tolerance of two decimals that allows a loss."""
    return math.ceil(100 * lost - 1e-6) / 100 if math.isfinite(lost) else lost


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Return the finite values, as JSON has neither NaN nor infinity."""
    return {name: v for name, v in values.items() if math.isfinite(v)}


def loses(
    stitch_id: int, file: Written, size: tuple[int, int], request: ExportRequest
) -> bool:
    """Return whether an evaluated file loses more than the tolerance.

    An fp32 graph may do so if images had to be resized to its ``size``.

    Raises:
        ValueError: If it is another fp32 file, which has no fallback.
    """
    if file.verified is None:
        return False
    found, lost = file.verified, file.verified['lost']
    lost = math.inf if lost is None else lost
    if round(lost, 6) <= request.tolerance:
        return False
    if file.precision != 'fp32':
        return True
    what = f'what stitch {stitch_id} loses as {file.format} in {file.precision}: '
    what += f'{found["metric"]} {found["value"]} instead of {found["pytorch"]}'
    resized, number = found['resized'], found['images']
    expected = f'at least {tolerance_for(lost)}, {what}'
    check(resized, '--tolerance', request.tolerance, expected)
    text = f'{resized} of {number} images are resized to {size_name(size)}, at which '
    text += f'mm does not run them; this is {what}'
    print_log(text, logger='current', level=logging.WARNING)
    return False
