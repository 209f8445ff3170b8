"""The task's metric of exported files, beside that of the stitch in PyTorch."""

import math
import time
from collections import defaultdict
from collections.abc import Mapping
from copy import deepcopy
from statistics import median
from typing import NamedTuple

import torch
from mmengine.config import Config
from mmengine.evaluator import Evaluator
from mmengine.logging import MMLogger
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.utils.data import DataLoader

from snnet_mm.costs import size_name
from snnet_mm.datasets import check_data_folders, prepare, spread
from snnet_mm.evaluation.image_scores import (
    ImageScores,
    image_scores,
    recorded_results,
)
from snnet_mm.stitching import (
    HIGHER,
    CostTable,
    StitchingSpace,
    StitchResults,
    key_metric,
    metric_directions,
)
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import Predictions
from snnet_mm.utils import check, quiet_terminal

from .description import described_task
from .formats import Run, runtime_setup
from .request import ExportRequest

WARM_UP = 2  # first images, whose times say little
PYTORCH = 'pytorch'


class Verified(NamedTuple):
    """Metrics over some images, and the median milliseconds of an image.

    ``scores`` say what the ranking metric is made of, or None where that is not known.
    """

    metrics: dict[str, float]
    ms: float
    num_images: int
    scores: ImageScores | None


@torch.no_grad()
def verify(
    cfg: Config,
    model: nn.Module,
    runs: Mapping[str, Run],
    size: tuple[int, int],
    mode: str = 'val',
    limit: int | None = None,
) -> dict[str, Verified]:
    """Evaluate a model, and files in its place, in turn on every image.

    What the model does before and after its graph, files are given too.

    Args:
        cfg: Config with the data and the metric of the mode.
        model: A stitch alone, which is changed; its results have the name
            ``'pytorch'``.
        runs: Opened files by name.
        size: Height and width that the files take.
        mode: ``'val'`` or ``'test'``.
        limit: Use only so many images, evenly spread.
    """
    loader, evaluators = _data(cfg, mode, limit, (PYTORCH, *runs))
    core = _Core(model, runs, size)
    for batch in loader:
        for name, evaluator in evaluators.items():
            core.active = name
            evaluator.process(prepare(model, batch)(), batch)
    number = len(loader.dataset)
    found = {}
    for name, evaluator in evaluators.items():
        tested, quiet = evaluator.metrics, MMLogger.get_current_instance()
        with quiet_terminal(quiet), recorded_results(tested) as results:
            metrics = {k: float(v) for k, v in evaluator.evaluate(number).items()}
        scores = image_scores(0, tested, results, metrics)
        times = core.times[name][WARM_UP:] or core.times[name]
        found[name] = Verified(metrics, median(times), number, scores)
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


def tolerance_for(lost: float) -> float:
    """Return the least tolerance of two digits that allows a loss."""
    return math.ceil(100 * lost - 1e-6) / 100 if math.isfinite(lost) else lost


def judge(
    stitch_id: int, file: Mapping, found: Mapping[str, Verified], request: ExportRequest
) -> tuple[dict, bool]:
    """Return the manifest's entry of an evaluated file, and whether it may stay.

    Raises:
        ValueError: If a file in fp32, in whose place there is none, lost too much.
    """
    own, wanted = found[file['name']], found[PYTORCH]
    metric = key_metric(wanted.metrics)
    direction = metric_directions(wanted.metrics).get(metric)
    check(direction, '--verify-on', metric, 'metrics whose direction is known')
    scores = own.metrics[metric], wanted.metrics[metric]
    lost = lost_points(*scores, direction == HIGHER)
    kept = round(lost, 6) <= request.tolerance
    what = f'at least {tolerance_for(lost)}, what stitch {stitch_id} loses as '
    what += f'{file["format"]} in {file["precision"]}: {metric} {scores[0]:.4g} '
    what += f'instead of {scores[1]:.4g}'
    must = file['precision'] == 'fp32'
    check(kept or not must, '--tolerance', request.tolerance, what)
    about = dict(on=request.verify_on, images=own.num_images, metric=metric)
    numbers = dict(value=scores[0], pytorch=scores[1], lost=lost)
    # JSON has neither NaN nor infinity.
    about |= {k: v if math.isfinite(v) else None for k, v in numbers.items()}
    about['interval'] = None
    if own.scores and wanted.scores:
        interval = own.scores.difference_from(wanted.scores)
        about['interval'] = interval if all(map(math.isfinite, interval)) else None
    metrics = {k: v for k, v in own.metrics.items() if math.isfinite(v)}
    return about | dict(ms=own.ms, pytorch_ms=wanted.ms, metrics=metrics), kept


def results_by_kind(
    space: StitchingSpace,
    costs: CostTable,
    found: Mapping[tuple[str, str], Mapping[int, Verified]],
) -> dict[tuple[str, str], StitchResults]:
    """Collect results, latencies included, by format and precision."""
    results = {}
    for (name, precision), rows in found.items():
        if not rows:  # all of them lost too much
            continue
        latency = {i: row.ms for i, row in rows.items()}
        table = costs.measured(runtime_setup(name, precision), latency)
        metrics = {i: row.metrics for i, row in rows.items()}
        number = next(iter(rows.values())).num_images
        collected = StitchResults.collect(space, table, metrics, number)
        results[name, precision] = collected
    return results


def _data(
    cfg: Config, mode: str, limit: int | None, names: tuple[str, ...]
) -> tuple[DataLoader, dict[str, Evaluator]]:
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
        for metric in evaluator.metrics:
            instead = task_of(metric).metric_for_part(metric)
            check(not (limit and instead), '--limit', limit, f'none, or {instead}')
    return loader, evaluators


class _Core:
    """The network of a model, which is timed, and in whose place files are run."""

    def __init__(
        self, model: nn.Module, runs: Mapping[str, Run], size: tuple[int, int]
    ) -> None:
        self.runs, self.size, self.active = runs, size, PYTORCH
        self.times: dict[str, list[float]] = defaultdict(list)
        self._norm = dict(model.data_preprocessor.named_buffers())
        task = described_task(model)
        dense = task in ('segmentation', 'depth')
        place = 'encode_decode' if dense else 'extract_feat'
        self._network = getattr(model, place)
        if task == 'classification':
            features, head = self._network, model.head.forward
            model.head.forward = lambda logits: logits
            self._network = lambda images: head(features(images))
        setattr(model, place, self)

    def __call__(self, images: Tensor, *args, **kwargs) -> Predictions:
        run, found = self.runs.get(self.active), tuple(images.shape[2:])
        fits = run is None or found == self.size
        allowed = f'{size_name(found)}, as images are'
        check(fits, '--shape', size_name(self.size), allowed)
        if run is not None and 'mean' in self._norm:
            # Graphs normalise images themselves, and padding is what becomes zero then.
            images = images * self._norm['std'] + self._norm['mean']
        start = time.perf_counter()
        # Graphs get images alone.
        result = self._network(images, *args) if run is None else run(images)
        elapsed = 1e3 * (time.perf_counter() - start)
        self.times[self.active].append(elapsed / len(images))
        return result
