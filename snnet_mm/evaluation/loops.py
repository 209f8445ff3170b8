"""Loops that evaluate any list of stitches in one pass over the data."""

import os
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from mmengine.dist import is_main_process
from mmengine.registry import LOOPS
from mmengine.runner import Runner, TestLoop, ValLoop
from torch import nn

from snnet_mm.models import find_stitched_backbone
from snnet_mm.stitching import Selection, StitchResults, key_metric, visiting_order
from snnet_mm.tasks import check_saved
from snnet_mm.utils import check, is_whole, quiet_terminal, register, work_dir_lock

from .metric_buffers import MetricBuffers, StitchScores
from .one_pass import run_one_pass
from .per_stitch_bn import prepare_statistics
from .testing import run_at_all_sizes


@register(LOOPS)
class StitchValLoop(ValLoop):
    """Validates the listed stitches in one pass over the data.

    Metrics are named ``stitch_<id>/<metric>``. Settings that name a metric, such as
    ``save_best``, ``EarlyStoppingHook.monitor`` and the ``monitor`` of schedulers, need
    no stitch: those of one stitch have plain names, too, with the metric that ranks
    stitches first, which is what ``save_best='auto'`` takes. It is the slowest anchor,
    in an elastic model the network itself; or the first of ``stitches`` if that is not
    validated.

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
        prepare_statistics(runner, ids)
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
        """Return the metrics of the stitch that settings without a stitch mean."""
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


@register(LOOPS)
class StitchTestLoop(TestLoop):
    """Tests the listed stitches in shared passes, and reports scores and costs.

    Prints a table and writes ``stitches.json`` and ``pareto.png``. For metrics with
    per-image statistics, also writes ``per_image.npz``; see :class:`ImageScores`. The
    work directory keeps scores of an interrupted test in ``partial_test_*.pth``.

    Args:
        runner: The runner.
        *args, **kwargs: See mmengine's ``TestLoop``.
        stitches, results, costs, metric, lower_is_better: See :class:`Selection`.
        input_size: See :func:`cost_table`.
        sizes: Heights and widths to test at. Images are resized; they must not be
            smaller than the largest size. Every size has a report folder, such as
            ``168x238``. Default: no resizing.
        out_dir: Folder of the report. Default: the log folder.
        quiet: Whether to write the report without printing it. Default: False.
        stitches_per_pass: Stitches per pass over the data, which bounds the memory.
            Default: 32.
        resume: Whether to reuse the scores of an interrupted test of the same model,
            data, config and stitches. Default: False.
        limit: Number of images to test, evenly spread over the data set. Default: all.
        screen: Number of images, evenly spread, on which all stitches are screened.
            The anchors and the best of every budget group are then tested on all
            images, or on ``limit`` images. Default: no screening.
        keep: Stitches per budget group (a tenth of the FLOPs range) that pass the
            screening. Default: 3.
        show_dir: Folder for pictures of all predictions, with a subfolder per size of
            ``sizes`` and stitch.

    Attributes:
        reports: Results of the last test, one for each size.
        seen_sizes: Sizes of the images that the backbone has seen.
    """

    def __init__(
        self,
        runner: Runner,
        *args,
        stitches: str | int | Sequence[int] = 'anchors',
        results: str | os.PathLike | None = None,
        costs: str | os.PathLike | Sequence[str] | None = None,
        metric: str | None = None,
        lower_is_better: Sequence[str] | None = None,
        input_size: Sequence[int] | None = None,
        sizes: Sequence[Sequence[int]] = (),
        out_dir: str | os.PathLike | None = None,
        quiet: bool = False,
        stitches_per_pass: int = 32,
        resume: bool = False,
        limit: int | None = None,
        screen: int | None = None,
        keep: int = 3,
        show_dir: str | os.PathLike | None = None,
        **kwargs,
    ) -> None:
        self.selection = Selection(stitches, results, costs, metric, lower_is_better)
        if isinstance(runner.model, nn.Module):  # before the data are loaded
            space = find_stitched_backbone(runner.model).space
            self.selection.check(space, counted=True)
        super().__init__(runner, *args, **kwargs)
        self.input_size, self.sizes = input_size, sizes
        self.metric, self.lower_is_better = metric, lower_is_better
        self.out_dir = Path(self.runner.log_dir if out_dir is None else out_dir)
        self.quiet, self.resume, self.show_dir = quiet, resume, show_dir
        self.stitches_per_pass, self.limit = stitches_per_pass, limit
        self.screen, self.keep = screen, keep
        self.reports: list[StitchResults] = []
        self.seen_sizes: set[tuple[int, int]] = set()
        for name in ('stitches_per_pass', 'limit', 'screen', 'keep'):
            if (number := getattr(self, name)) is not None:
                check(is_whole(number, 1), f'test_cfg.{name}', number, '1 or more')
        enough = not (limit and screen) or limit > screen
        check(enough, 'test_cfg.limit', limit, f'more than the {screen} of screen')

    def run(self) -> dict[str, float]:
        runner, main = self.runner, is_main_process()
        with work_dir_lock(runner.work_dir, 'test') if main else nullcontext():
            runner.call_hook('before_test')
            runner.call_hook('before_test_epoch')
            runner.model.eval()
            metrics = run_at_all_sizes(self)
            with quiet_terminal(runner.logger):
                runner.call_hook('after_test_epoch', metrics=metrics)
            runner.call_hook('after_test')
        return metrics
