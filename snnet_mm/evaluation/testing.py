"""Tests of stitches at one or several image sizes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mmengine.dist import is_main_process

from snnet_mm.costs.counting import cost_table
from snnet_mm.costs.parts import size_of_images
from snnet_mm.costs.sizes import Size, check_sizes, size_name
from snnet_mm.datasets import spread
from snnet_mm.models import find_stitched_backbone, set_input_size
from snnet_mm.stitching import (
    NoMetricsError,
    StitchResults,
    best_per_budget_group,
    visiting_order,
)
from snnet_mm.tasks import check_partial, check_saved
from snnet_mm.utils import digest, link_latest
from snnet_mm.utils.configs import takes_rgb

from .image_scores import save_image_scores
from .metric_buffers import MetricBuffers, StitchScores
from .one_pass import check_metric, run_one_pass
from .partial_results import PartialResults, identify, image_paths
from .per_stitch_bn import prepare_statistics
from .pictures.prediction_drawer import PredictionDrawer
from .tables import report_sizes, report_stitches

if TYPE_CHECKING:
    from .loops import StitchTestLoop


def run_at_all_sizes(loop: StitchTestLoop) -> dict[str, float]:
    """Test and report stitches at the sizes of a loop; return all metrics by name."""
    runner, dataset = loop.runner, loop.dataloader.dataset
    sizes = check_sizes(runner.model, loop.sizes, 'test_cfg.sizes')
    if loop.metric is not None:
        check_metric(runner, loop.dataloader, loop.evaluator, loop.metric)
    identity = identify(runner, dataset)
    chosen = loop.selection.word, loop.selection.ids, loop.selection.budgets
    asked = repr((chosen, sizes, loop.limit, loop.screen))
    # Other tests in the same folder must not touch the file.
    name = f'partial_test_{digest([identity, asked])}.pth'
    partial = PartialResults(Path(runner.work_dir, name), loop.resume, runner.logger)
    metrics, reports = {}, []
    try:
        for size in sizes or (None,):
            try:
                reports.append(OneSize(loop, size, partial).run())
            except NoMetricsError as error:
                runner.logger.warning(f'No report is written: {error}')
                continue
            at = f'{size_name(size)}/' if size else ''
            for row in reports[-1].stitches:
                found = row.metrics.items()
                metrics |= {f'{at}stitch_{row.id}/{name}': v for name, v in found}
    finally:
        set_input_size(runner.model, None)
    loop.reports = reports
    if len(reports) > 1 and is_main_process():
        report_sizes(reports, loop.out_dir)
    partial.remove()
    return metrics


class OneSize:
    """A test of the stitches that a loop selects, and its report.

    Args:
        loop: The loop whose settings apply.
        size: Height and width that images are resized to; None leaves them as they are.
        partial: Scores of finished stitches.
    """

    def __init__(
        self, loop: StitchTestLoop, size: Size | None, partial: PartialResults
    ) -> None:
        self.loop, self.size, self.partial = loop, size, partial
        self.runner, model = loop.runner, loop.runner.model
        self.backbone = find_stitched_backbone(model)
        self.space = self.backbone.space
        set_input_size(model, size)
        known, log = size or loop.input_size, self.runner.logger.info
        known = known or size_of_images(model, loop.dataloader, self.runner.seed)
        counted = cost_table(model, known)
        self.costs = loop.selection.costs_at(counted)
        images = size_name(self.costs.input_size)
        self.ids = loop.selection.select(
            self.space, counted, lambda reason: log(f'{reason}; images of {images}')
        )
        number = len(self.ids) * max(len(loop.sizes), 1)
        check_saved(loop.evaluator, 'test_evaluator', number)
        if loop.limit or loop.screen:
            check_partial(loop.evaluator, '--limit, --screen')

    def run(self) -> StitchResults:
        """Evaluate and report the stitches; with ``screen``, screen them first."""
        loop = self.loop
        folder = loop.out_dir / size_name(self.size) if self.size else loop.out_dir
        prepare_statistics(self.runner, self.ids)
        with self._watched_sizes():
            report, scores = self._evaluate(self.ids, loop.screen or loop.limit)
            if loop.screen is not None:
                kept = best_per_budget_group(report, loop.keep)
                self.runner.logger.info(
                    f'{len(kept)} of {len(self.ids)} stitches passed the screening on '
                    f'{report.stitches[0].num_images} images: {list(kept)}'
                )
                on_all, more = self._evaluate(kept, loop.limit)
                report, scores = report.updated_by(on_all), scores | more
        if is_main_process():
            report_stitches(report, folder, loop.quiet)
            if self.size is None and len(report.stitches) == len(self.space):
                link_latest(folder / 'stitches.json', self.runner.work_dir)
            images = [scores[r.id].images for r in report.complete]
            save_image_scores(images, report, folder / 'per_image.npz')
        return report

    def _evaluate(
        self, ids: Sequence[int], limit: int | None
    ) -> tuple[StitchResults, dict[int, StitchScores]]:
        """Evaluate the stitches that have no scores yet, group by group."""
        loop, runner, partial, draw = self.loop, self.runner, self.partial, None
        loader = loop.dataloader if limit is None else spread(loop.dataloader, limit)
        number, total = len(loader.dataset), len(loop.dataloader.dataset)
        if loop.show_dir is not None:
            draw = self._drawer(Path(loop.show_dir))
        keys = {i: (i, number, self.size) for i in ids}
        left = [self.space[i] for i in ids if keys[i] not in partial.scores]
        left = [stitch.id for stitch in visiting_order(left)]
        for begin in range(0, len(left), loop.stitches_per_pass):
            group = left[begin : begin + loop.stitches_per_pass]
            buffers = MetricBuffers(loop.evaluator, group)
            run_one_pass(runner, 'test', loader, buffers, loop.fp16, draw)
            found = buffers.scores(runner.logger, number, loop.metric)
            partial.add({keys[i]: of_stitch for i, of_stitch in found.items()})
        scores = {i: partial.scores[key] for i, key in keys.items()}
        metrics = {i: of_stitch.metrics for i, of_stitch in scores.items()}
        seen = scores[ids[0]].num_images
        results = StitchResults.collect(
            self.space, self.costs, metrics, seen, loop.lower_is_better
        ).ranked_by(loop.metric)
        results = replace(results, data_size=total if seen < total else None)
        return results, scores

    def _drawer(self, folder: Path) -> PredictionDrawer:
        """Return what draws predictions, at one of several sizes in its own folder."""
        paths = [p for p in image_paths(self.loop.dataloader.dataset) if p]
        folders = {os.path.dirname(os.path.abspath(path)) for path in paths}
        root = os.path.commonpath(folders) if folders else None
        # Models get RGB.
        rgb = not takes_rgb(self.runner.cfg)
        folder = folder / size_name(self.size) if self.size else folder
        return PredictionDrawer(self.runner.visualizer, folder, root, rgb)

    @contextmanager
    def _watched_sizes(self) -> Iterator[None]:
        """Warn if all images have the same size, but costs are counted at another."""
        seen, counted = set(), self.costs.input_size
        with self.backbone.register_forward_pre_hook(
            lambda b, inputs: seen.add(b.input_size or tuple(inputs[0].shape[-2:]))
        ):
            yield
        self.loop.seen_sizes |= seen
        if len(seen) == 1 and seen != {tuple(counted)}:
            self.runner.logger.warning(
                f'The network saw images of {size_name(seen.pop())}, but costs are '
                f'counted at {size_name(counted)} '
                '(config key: test_cfg.input_size)'
            )
