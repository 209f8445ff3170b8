"""Tests of models without stitches, such as single anchors, for use as baselines."""

from dataclasses import replace
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.hooks import Hook
from mmengine.runner import Runner

from snnet_mm.costs.counting import whole_model_cost
from snnet_mm.costs.sizes import size_of_images
from snnet_mm.models import unwrapped
from snnet_mm.stitching import UNITS, StitchRow, StitchTable
from snnet_mm.utils import link_latest

from .image_scores import gathered, image_names, image_scores
from .metric_buffers import numbers_of
from .testing import IMAGE_SCORES, identify


class ImagesHook(Hook):
    """Records the names of tested images and the per-image results of metrics."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.results: list[list] = []

    def after_test_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        """Add the image names of a batch; after the last batch, copy all results."""
        self.names += image_names(outputs)
        if batch_idx + 1 == len(runner.test_dataloader):
            metrics = runner.test_evaluator.metrics
            self.results = [list(metric.results) for metric in metrics]


def evaluate_whole_model(runner: Runner) -> None:
    """Test a model, and write its costs and metrics to ``results.json``.

    Plots and comparisons read the file as a baseline. If the metric has per-image
    statistics, ``per_image.npz`` is written beside it, as for stitches.
    """
    hook, loader = ImagesHook(), runner.test_dataloader
    runner.register_hook(hook)
    values = runner.test()
    evaluator, data = runner.test_evaluator, loader.dataset
    metrics, names = numbers_of(evaluator, values), gathered(hook.names, len(data))
    results = evaluator.metrics, hook.results
    scores = image_scores(0, *results, metrics, names=names)
    identity = identify(runner, data)
    if not metrics or not is_main_process():
        return
    try:
        size = size_of_images(runner.model, loader, 0)
        cost, scope = whole_model_cost(runner.model, size)
    except ValueError as error:  # such as images in several views
        runner.logger.warning(f'No results.json: costs cannot be counted: {error}')
        return
    row = StitchRow(0, 'whole', type(unwrapped(runner.model)).__name__, *cost, size)
    table = StitchTable([row], 'no stitches', scope, digest=identity)
    table = table.with_metrics({0: metrics}, len(names))
    path, images = (Path(runner.log_dir, n) for n in ('results.json', IMAGE_SCORES))
    if scores is not None:
        replace(scores, digest=identity).save(images)
        link_latest(images, runner.work_dir)
    table.save(path)
    link_latest(path, runner.work_dir)
    score, gflops = metrics[table.metric], UNITS['flops'].cell(cost.flops)
    print(f'{table.metric} {score:.4g}, {gflops} GFLOPs. Wrote {path}')
