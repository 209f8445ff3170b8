"""The task's metric of exported files, beside that of the stitch in PyTorch."""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from statistics import median
from typing import NamedTuple

import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from torch import Tensor, nn

from snnet_mm.datasets import check_data_folders
from snnet_mm.evaluation import WHOLE_DATA_METRICS, prepare, spread
from snnet_mm.stitching import (
    HIGHER,
    CostTable,
    Setup,
    StitchingSpace,
    StitchResults,
    key_metric,
    metric_directions,
)
from snnet_mm.utils import check, quiet_terminal

from .graph import Predictions, is_detector
from .request import ExportRequest

WARM_UP = 2  # first images, whose times say little
Core = Callable[..., Predictions]


class Verified(NamedTuple):
    """Metrics over some images, and the median milliseconds of an image."""

    metrics: dict[str, float]
    ms: float
    num_images: int


@torch.no_grad()
def verify(
    cfg: Config,
    model: nn.Module,
    runs: Mapping[str, Callable[[Tensor], Predictions]],
    size: tuple[int, int],
    mode: str = 'val',
    limit: int | None = None,
) -> dict[str, Verified]:
    """Evaluate a model, and files in its place, in turn on every image.

    What the model does before and after its graph, files are given too.

    Args:
        cfg: Config with the data and the metric of the mode.
        model: A stitch alone; its results have the name ``'pytorch'``.
        runs: Opened files by name.
        size: Height and width that the files take.
        mode: ``'val'`` or ``'test'``.
        limit: Use only so many images, evenly spread.
    """
    loader, evaluators = _data(cfg, mode, limit, ('pytorch', *runs))
    models, times = {}, {name: [] for name in evaluators}
    for name, seconds in times.items():
        models[name] = _with_core(model, runs.get(name), size, seconds)
    for batch in loader:
        for name, timed in models.items():
            evaluators[name].process(prepare(timed, batch)(), batch)
    number = len(loader.dataset)
    found = {}
    for name, evaluator in evaluators.items():
        with quiet_terminal(MMLogger.get_current_instance()):
            metrics = {k: float(v) for k, v in evaluator.evaluate(number).items()}
        seconds = times[name][WARM_UP:] or times[name]
        found[name] = Verified(metrics, 1e3 * median(seconds), number)
    return found


def lost_points(value: float, wanted: float, higher_is_better: bool) -> float:
    """Return what a metric lost: points of 100, or of an error percent of it.

    Shares, from 0 to 1, count as points of 100. NaN lost everything.
    """
    if math.isnan(value):
        return 0.0 if math.isnan(wanted) else math.inf
    if higher_is_better:
        return (wanted - value) * (100 if max(value, wanted) <= 1 else 1)
    return 100 * (value - wanted) / max(abs(wanted), 1e-9)


def judge(
    stitch_id: int, file: Mapping, found: Mapping[str, Verified], request: ExportRequest
) -> dict:
    """Return what the manifest says of an evaluated file; refuse one that lost much."""
    own, wanted = found[file['name']], found['pytorch']
    metric = key_metric(wanted.metrics)
    direction = metric_directions(wanted.metrics).get(metric)
    check(direction, '--verify-on', metric, 'metrics whose direction is known')
    scores = own.metrics[metric], wanted.metrics[metric]
    lost = lost_points(*scores, direction == HIGHER)
    what = f'at least {lost:.2g}, what stitch {stitch_id} loses as {file["format"]} in '
    what += f'{file["precision"]}: {metric} {scores[0]:.4g} instead of {scores[1]:.4g}'
    check(lost <= request.tolerance, '--tolerance', request.tolerance, what)
    about = dict(on=request.verify_on, images=own.num_images, metric=metric)
    about |= dict(value=scores[0], pytorch=scores[1], lost=lost)
    return about | dict(ms=own.ms, pytorch_ms=wanted.ms, metrics=own.metrics)


def results_by_file(
    space: StitchingSpace,
    costs: CostTable,
    found: Mapping[tuple[str, str], Mapping[int, Verified]],
) -> Iterator[tuple[str, StitchResults]]:
    """Yield file names and results, latencies included, by format and precision."""
    for (name, precision), rows in found.items():
        device = f'{name} on a cpu, threads: {torch.get_num_threads()}'
        latency = {i: row.ms for i, row in rows.items()}
        table = costs.measured(Setup(device, 1, precision), latency)
        metrics = {i: row.metrics for i, row in rows.items()}
        number = next(iter(rows.values())).num_images
        results = StitchResults.collect(space, table, metrics, number)
        yield f'stitches_{name}_{precision}.json', results


def _data(cfg: Config, mode: str, limit: int | None, names: tuple[str, ...]):
    """Return the data loader of a mode, and an evaluator for each name."""
    settings, metric = cfg.get(f'{mode}_dataloader'), cfg.get(f'{mode}_evaluator')
    check(settings, '--verify-on', mode, f'a config with {mode}_dataloader')
    check_data_folders(settings, f'{mode}_dataloader')
    # Workers would take time from what is timed.
    settings = deepcopy(settings)
    settings.update(num_workers=0, persistent_workers=False)
    loader = Runner.build_dataloader(settings, seed=0)
    loader = loader if limit is None else spread(loader, limit)
    evaluators = {name: Evaluator(deepcopy(metric)) for name in names}
    for evaluator in evaluators.values():
        evaluator.dataset_meta = getattr(loader.dataset, 'metainfo', {})
        for matches, instead in WHOLE_DATA_METRICS:
            wrong = limit and any(map(matches, evaluator.metrics))
            check(not wrong, '--limit', limit, f'none, or {instead}')
    return loader, evaluators


def _with_core(
    model: nn.Module, run: Core | None, size: tuple[int, int], seconds: list[float]
) -> nn.Module:
    """Return a copy of a model whose network is timed, or replaced by a file."""
    model = deepcopy(model)
    if run is not None and hasattr(model.data_preprocessor, 'mean'):
        # The graph normalises.
        model.data_preprocessor.mean.zero_()
        model.data_preprocessor.std.fill_(1)
    segments = hasattr(model, 'encode_decode')
    core = model.encode_decode if segments else model.extract_feat
    if not segments and not is_detector(model):
        features, head = core, model.head.forward
        model.head.forward = lambda logits: logits

        def core(images: Tensor) -> Tensor:
            return head(features(images))

    def timed(images: Tensor, *args, **kwargs) -> Predictions:
        found = tuple(images.shape[2:])
        check(run is None or found == size, '--shape', size, f'{found}, as images are')
        start = time.perf_counter()
        # Graphs get images alone.
        result = core(images, *args) if run is None else run(images)
        seconds.append((time.perf_counter() - start) / len(images))
        return result

    setattr(model, 'encode_decode' if segments else 'extract_feat', timed)
    return model
