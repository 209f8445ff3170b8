"""Tests of models without stitches, such as an anchor alone, as baselines."""

from collections.abc import Mapping
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.runner import Runner

from snnet_mm.models import unwrapped
from snnet_mm.stitching import (
    UNITS,
    StitchResult,
    StitchResults,
    key_metric,
    metric_directions,
)
from snnet_mm.utils import is_number, link_latest

from .costs import whole_model_cost
from .image_scores import image_scores, recorded_results
from .parts import size_of_images


def evaluate_whole_model(runner: Runner) -> None:
    """Test a model, and write its costs and metrics to ``results.json``.

    Plots and comparisons take it for a baseline. Beside it stands ``per_image.npz``, as
    of stitches, where the metric is known image by image.
    """
    tested = runner.test_evaluator.metrics
    with recorded_results(tested) as results:
        metrics = runner.test()
    if not is_main_process():
        return
    metrics = {k: float(value) for k, value in metrics.items() if is_number(value)}
    if metrics and write_results(runner, metrics):
        scores = image_scores(0, tested, results, list(metrics))
        if scores is not None:
            scores.save(Path(runner.log_dir, 'per_image.npz'))
            link_latest(Path(runner.log_dir, 'per_image.npz'), runner.work_dir)


def write_results(runner: Runner, metrics: Mapping[str, float]) -> bool:
    """Write the results of a model, and return whether its costs could be counted."""
    loader = runner.test_dataloader
    try:
        size = size_of_images(runner.model, loader, 0)
        cost = whole_model_cost(runner.model, size)
    except Exception as error:  # heads that cannot run on meta tensors
        runner.logger.info(f'No results.json: costs cannot be counted: {error}')
        return False
    name, number = type(unwrapped(runner.model)).__name__, len(loader.dataset)
    about = 0, 'whole', name, cost.flops, cost.params
    row = StitchResult(*about, metrics, num_images=number)
    directions, metric = metric_directions(metrics), key_metric(metrics)
    results = StitchResults([row], metric, directions, size, 'no stitches')
    path = Path(runner.log_dir, 'results.json')
    results.save(path)
    link_latest(path, runner.work_dir)
    gflops, params = (UNITS[n].cell(getattr(row, n)) for n in ('flops', 'params'))
    words = f'{gflops} GFLOPs at {size[0]}x{size[1]}, {params} M parameters'
    print(f'{metric} {metrics[metric]:.4g}, {words}. Wrote {path}')
    return True
