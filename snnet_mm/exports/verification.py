"""Metrics of exported files, compared with the same stitch in PyTorch."""

import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from statistics import median

import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import DataLoader

from snnet_mm.costs import size_name
from snnet_mm.datasets import check_data_folders, spread
from snnet_mm.evaluation.metric_buffers import MetricBuffers
from snnet_mm.stitching import HIGHER, key_metric, metric_directions
from snnet_mm.tasks import check_partial, task_of
from snnet_mm.tasks.base import Predictions
from snnet_mm.training.trial import evaluator_of
from snnet_mm.utils import check

from .formats import ExportRequest, Run, Written

PYTORCH = 'pytorch'

WARM_UP = 2  # first calls, whose times are discarded


@torch.no_grad()
def evaluate(
    cfg: Config,
    model: nn.Module,
    files: Sequence[Written],
    size: tuple[int, int],
    request: ExportRequest,
) -> dict[str, float]:
    """Evaluate a model, and files that replace its network, alternating per batch.

    The model of a single stitch is modified in place, and its metrics are returned.
    The files take images of ``size``; their ``verified`` entries are set.

    Raises:
        ValueError: If the direction of the metric is unknown.
    """
    loader, evaluator = _data(cfg, request.verify_on, request.limit)
    runs = {file.path.name: file.open() for file in files}
    network = _Network(model, runs, size)
    buffers = MetricBuffers(evaluator, (PYTORCH, *runs))
    for batch in loader:
        for _ in buffers.predict(model, batch, network.switch):
            pass
    scores = buffers.scores(MMLogger.get_current_instance(), len(loader.dataset))
    times = {k: median(all[WARM_UP:] or all) for k, all in network.times.items()}
    pytorch, ms = scores[PYTORCH], times[PYTORCH]
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
            metric=metric,
            **dict.fromkeys(values) | finite(values),
            interval=interval,
            ms=times[file.path.name],
            pytorch_ms=ms,
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


class _Network:
    """Replaces a model's network, to run and time it or an exported file."""

    def __init__(
        self, model: nn.Module, runs: Mapping[str, Run], size: tuple[int, int]
    ) -> None:
        self.runs, self.size, self.active = runs, size, PYTORCH
        self.times: dict[str, list[float]] = defaultdict(list)
        self._norm = dict(model.data_preprocessor.named_buffers())
        task_of(model).replace_network(model, self._timed)

    def switch(self, name: str) -> None:
        self.active = name

    def _timed(
        self, network: Callable, conclude: Callable | None = None
    ) -> Callable[..., Predictions]:
        def run(images: Tensor, *args) -> Predictions:
            graph, found = self.runs.get(self.active), tuple(images.shape[2:])
            expected = f'{size_name(found)}, the size of the images'
            fits = graph is None or found == self.size
            check(fits, '--shape', size_name(self.size), expected)
            if graph is not None and 'mean' in self._norm:
                # Undo the normalisation, which graphs repeat: padding is zero again.
                images = images * self._norm['std'] + self._norm['mean']
            start = time.perf_counter()
            # Graphs take no other arguments.
            result = network(images, *args) if graph is None else graph(images)
            if graph is not None and conclude is not None:
                result = conclude(result, *args)
            elapsed = 1e3 * (time.perf_counter() - start)
            self.times[self.active].append(elapsed / len(images))
            return result

        return run


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


def loses(stitch_id: int, file: Written, request: ExportRequest) -> bool:
    """Return whether an evaluated file loses more than the tolerance.

    Raises:
        ValueError: If it is an fp32 file, which has no fallback.
    """
    if file.verified is None:
        return False
    found, lost = file.verified, file.verified['lost']
    lost = math.inf if lost is None else lost
    kept = round(lost, 6) <= request.tolerance
    what = f'at least {tolerance_for(lost)}, what stitch {stitch_id} loses as '
    what += f'{file.format} in {file.precision}: {found["metric"]} {found["value"]} '
    what += f'instead of {found["pytorch"]}'
    check(kept or file.precision != 'fp32', '--tolerance', request.tolerance, what)
    return not kept
