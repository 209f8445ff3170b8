"""Tests of models without stitches, such as an anchor alone, as baselines."""

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
    tested, model = runner.test_evaluator.metrics, runner.model
    with recorded_results(tested) as of_images:
        metrics = runner.test()
    metrics = {k: float(value) for k, value in metrics.items() if is_number(value)}
    if not metrics or not is_main_process():
        return
    loader = runner.test_dataloader
    try:
        size = size_of_images(model, loader, 0)
        cost = whole_model_cost(model, size)
    except Exception as error:  # heads that cannot run on meta tensors
        runner.logger.info(f'No results.json: costs cannot be counted: {error}')
        return
    about = 0, 'whole', type(unwrapped(model)).__name__, cost.flops, cost.params
    row = StitchResult(*about, metrics, num_images=len(loader.dataset))
    directions, metric = metric_directions(metrics), key_metric(metrics)
    path, images = (Path(runner.log_dir, n) for n in ('results.json', 'per_image.npz'))
    StitchResults([row], metric, directions, size, 'no stitches').save(path)
    link_latest(path, runner.work_dir)
    gflops, params = (UNITS[n].cell(getattr(row, n)) for n in ('flops', 'params'))
    words = f'{gflops} GFLOPs at {size[0]}x{size[1]}, {params} M parameters'
    print(f'{metric} {metrics[metric]:.4g}, {words}. Wrote {path}')
    scores = image_scores(0, tested, of_images, metrics)
    if scores is not None:
        scores.save(images)
        link_latest(images, runner.work_dir)
