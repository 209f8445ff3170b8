"""Loops that evaluate any list of stitches in one pass over the data."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.registry import LOOPS
from mmengine.runner import Runner, TestLoop, ValLoop
from torch import nn

from snnet_mm.costs.counting import cost_table
from snnet_mm.costs.sizes import check_sizes, size_name, size_of_images
from snnet_mm.datasets import spread
from snnet_mm.models import find_stitched_backbone, set_input_size
from snnet_mm.stitching import Selection, StitchTable, key_metric, visiting_order
from snnet_mm.tasks import check_partial, check_saved
from snnet_mm.utils import (
    check,
    is_whole,
    link_latest,
    plural,
    quiet_terminal,
    work_dir_lock,
)
from snnet_mm.utils.configs import takes_rgb

from .metric_buffers import MetricBuffers, StitchScores
from .one_pass import check_metric, run_one_pass
from .pictures.prediction_drawer import PredictionDrawer
from .tables import report_stitches
from .testing import RESULTS, WrittenResults


@LOOPS.register_module()
class StitchValLoop(ValLoop):
    """Validates the listed stitches in one pass over the data.

    Metrics are named ``stitch_<id>/<metric>``. Settings that name a metric, such as
    ``save_best``, ``EarlyStoppingHook.monitor`` and the ``monitor`` of schedulers, need
    no stitch, because the metrics of one stitch also have plain names. This is the
    slowest anchor, in an elastic model the network itself, or the first of ``stitches``
    if that is not validated. The metric that ranks stitches comes first, because
    ``save_best='auto'`` uses the first metric.

    Args:
        *args, **kwargs: See mmengine's ``ValLoop``.
        stitches: See :class:`snnet_mm.stitching.Selection`.
    """

    def __init__(
        self, *args, stitches: str | int | Sequence[int] = 'anchors', **kwargs
    ) -> None:
        super().__init__(*args, **kwargs)
        self.selection = Selection(stitches)
        if isinstance(self.runner.model, nn.Module):  # FlexibleRunner builds it later
            self._selected_ids()  # fail early: the first validation may be hours away

    def run(self) -> dict[str, float]:
        runner, ids = self.runner, self._selected_ids()
        runner.call_hook('before_val')
        runner.call_hook('before_val_epoch')
        runner.model.eval()
        buffers = MetricBuffers(self.evaluator, ids)
        runner.call_hook('before_stitches', ids=ids)
        run_one_pass(runner, 'val', self.dataloader, buffers, self.fp16)
        scores = buffers.scores(runner.logger, len(self.dataloader.dataset))
        metrics = self._plainly_named(scores) | {
            f'stitch_{i}/{name}': value
            for i, found in scores.items()
            for name, value in found.metrics.items()
        }
        runner.call_hook('after_val_epoch', metrics=metrics)
        runner.call_hook('after_val')
        return metrics

    def _plainly_named(self, scores: Mapping[int, StitchScores]) -> dict[str, float]:
        """Return the metrics of the stitch that settings without a stitch refer to."""
        space = find_stitched_backbone(self.runner.model).space
        slowest, first = space.anchor_ids[-1], self.selection.select(space)[0]
        metrics = scores[slowest if slowest in scores else first].metrics
        ranking = [key_metric(metrics)] if metrics else []
        return {name: metrics[name] for name in [*ranking, *metrics]}

    def _selected_ids(self) -> list[int]:
        space = find_stitched_backbone(self.runner.model).space
        ids = self.selection.select(space)
        check_saved(self.evaluator, 'val_evaluator', len(ids))
        return [stitch.id for stitch in visiting_order(space[i] for i in ids)]


@LOOPS.register_module()
class StitchTestLoop(TestLoop):
    """Tests the listed stitches in shared passes, and reports scores and costs.

    After each pass, ``stitches.json`` and, for metrics with per-image statistics,
    ``per_image.npz`` are written; see :class:`ImageScores`. In the end, a table is
    printed and ``pareto.png`` is drawn.

    Args:
        runner: The runner.
        *args, **kwargs: See mmengine's ``TestLoop``.
        stitches, results, metric, lower_is_better: See :class:`Selection`.
        input_size: See :func:`cost_table`.
        resize: Height and width that images are resized to; they must not be smaller.
            Default: no resizing.
        out_dir: Folder of the report. Default: the log folder.
        quiet: Whether to write the report without printing it. Default: False.
        stitches_per_pass: Stitches per pass over the data, which bounds the memory.
            Default: 32.
        resume: Whether to skip the stitches in the newest results of the same model,
            data and config in ``out_dir`` or the work directory. Default: False.
        limit: Number of images to test, evenly spread over the data set. Default: all.
        show_dir: Folder for pictures of all predictions, with a subfolder per stitch.

    Attributes:
        costs: Costs of all stitches. Default: they are counted; see :func:`cost_table`.
        table: Costs and metrics of the last test; None without metrics.
    """

    def __init__(
        self,
        runner: Runner,
        *args,
        stitches: str | int | Sequence[int] = 'anchors',
        results: str | os.PathLike | Sequence[str] | None = None,
        metric: str | None = None,
        lower_is_better: Sequence[str] | None = None,
        input_size: Sequence[int] | None = None,
        resize: Sequence[int] | None = None,
        out_dir: str | os.PathLike | None = None,
        quiet: bool = False,
        stitches_per_pass: int = 32,
        resume: bool = False,
        limit: int | None = None,
        show_dir: str | os.PathLike | None = None,
        **kwargs,
    ) -> None:
        self.selection = Selection(stitches, results, metric, lower_is_better)
        limits = ('stitches_per_pass', stitches_per_pass), ('limit', limit)
        for name, number in limits:
            right = number is None or is_whole(number, 1)
            check(right, f'test_cfg.{name}', number, '1 or more')
        super().__init__(runner, *args, **kwargs)
        self.input_size, self.resize = input_size, resize
        self.metric, self.lower_is_better = metric, lower_is_better
        self.out_dir = Path(self.runner.log_dir if out_dir is None else out_dir)
        self.quiet, self.resume, self.show_dir = quiet, resume, show_dir
        self.stitches_per_pass, self.limit = stitches_per_pass, limit
        self.costs: StitchTable | None = None
        self.table: StitchTable | None = None

    def run(self) -> dict[str, float]:
        runner, main = self.runner, is_main_process()
        with work_dir_lock(runner.work_dir, 'test') if main else nullcontext():
            runner.call_hook('before_test')
            runner.call_hook('before_test_epoch')
            runner.model.eval()
            try:
                self.table = self._tested(self._costs())
            finally:
                set_input_size(runner.model, None)
            if main and self.table is not None:
                report_stitches(self.table, self.out_dir, self.quiet)
                space = find_stitched_backbone(runner.model).space
                if self.resize is None and len(self.table) == len(space):
                    link_latest(self.out_dir / RESULTS, runner.work_dir)
            metrics = {
                f'stitch_{row.id}/{name}': value
                for row in (self.table.rows if self.table else ())
                for name, value in row.metrics.items()
            }
            with quiet_terminal(runner.logger):
                runner.call_hook('after_test_epoch', metrics=metrics)
            runner.call_hook('after_test')
        return metrics

    def _costs(self) -> StitchTable:
        """Resize images from now on; return the costs of all stitches at their size."""
        model, size = self.runner.model, self.input_size
        if self.resize is not None:
            (size,) = check_sizes(model, [self.resize], 'test_cfg.resize')
            set_input_size(model, size)
        seed = self.runner.seed
        size = size or size_of_images(model, self.dataloader, seed)
        return self.costs or cost_table(model, size)

    def _tested(self, costs: StitchTable) -> StitchTable | None:
        """Test the stitches, except those that a resumed test has."""
        runner, loader = self.runner, self.dataloader
        total = len(loader.dataset)
        space = find_stitched_backbone(runner.model).space
        ids = self.selection.select(space, costs, runner.logger.info)
        check_saved(self.evaluator, 'test_evaluator', len(ids))
        if self.metric is not None:
            check_metric(runner, loader, self.evaluator, self.metric)
        if self.limit is not None:
            check_partial(self.evaluator, '--limit')
            loader = spread(loader, self.limit)
        about = runner, loader.dataset, total, self.metric, self.lower_is_better
        written = WrittenResults(costs, self.out_dir, *about)
        if self.resume:
            written.resume(Path(runner.work_dir))
            runner.logger.info(
                f'Tested already: {plural(len(written.metrics), "stitch")}'
            )
        left = [space[i] for i in ids if i not in written.metrics]
        left = [stitch.id for stitch in visiting_order(left)]
        draw = None
        if self.show_dir is not None:
            rgb = not takes_rgb(runner.cfg)  # models get RGB
            draw = PredictionDrawer(runner.visualizer, self.show_dir, rgb)
        runner.call_hook('before_stitches', ids=left)
        with self._watched_sizes(costs.input_size):
            for begin in range(0, len(left), self.stitches_per_pass):
                group = left[begin : begin + self.stitches_per_pass]
                buffers = MetricBuffers(self.evaluator, group)
                run_one_pass(runner, 'test', loader, buffers, self.fp16, draw)
                number = len(loader.dataset)
                written.add(buffers.scores(runner.logger, number, self.metric))
        if (table := written.table()) is None:
            runner.logger.warning(
                'No report is written: no metric of the evaluator is a single number; '
                'the log or its own files have the results (config key: test_evaluator)'
            )
        return table

    @contextmanager
    def _watched_sizes(self, counted: tuple[int, int]) -> Iterator[None]:
        """Warn if all images have the same size, but costs are counted at another."""
        seen, backbone = set(), find_stitched_backbone(self.runner.model)
        with backbone.register_forward_pre_hook(
            lambda b, inputs: seen.add(b.input_size or tuple(inputs[0].shape[-2:]))
        ):
            yield
        if len(seen) == 1 and seen != {counted}:
            self.runner.logger.warning(
                f'The network saw images of {size_name(seen.pop())}, but costs are '
                f'counted at {size_name(counted)} (config key: test_cfg.input_size)'
            )
