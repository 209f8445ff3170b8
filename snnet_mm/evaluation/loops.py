"""Loops that evaluate any list of stitches in one pass over the data."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from mmengine.dist import is_main_process
from mmengine.registry import LOOPS
from mmengine.runner import Runner, TestLoop, ValLoop
from torch import nn

from snnet_mm.costs.counting import cost_table
from snnet_mm.costs.parts import size_of_images
from snnet_mm.costs.sizes import Size, check_sizes, size_name
from snnet_mm.datasets import spread
from snnet_mm.models import (
    find_stitched_backbone,
    set_input_size,
)
from snnet_mm.stitching import (
    CostTable,
    NoMetricsError,
    Selection,
    StitchingSpace,
    StitchResults,
    best_per_budget_group,
    visiting_order,
)
from snnet_mm.tasks import check_partial, check_saved
from snnet_mm.utils import (
    atomic_path,
    check,
    is_whole,
    link_latest,
    quiet_terminal,
    register,
    work_dir_lock,
)

from .image_scores import save_image_scores
from .one_pass import check_metric, run_one_pass
from .partial_results import MetricBuffers, PartialResults, StitchScores, identify
from .per_stitch_bn import own_statistics, recalibrated, statistics_hook
from .pictures.prediction_drawer import PredictionDrawer
from .tables import report_sizes, report_stitches

Evaluate = Callable[[Sequence[int], int | None], StitchResults]


@register(LOOPS)
class StitchValLoop(ValLoop):
    """Validates the listed stitches in one pass over the data.

    Metrics are named ``stitch_<id>/<metric>``.

    Args:
        *args: See mmengine's ``ValLoop``.
        stitches: See :class:`snnet_mm.stitching.Selection`.
        **kwargs: See mmengine's ``ValLoop``.
    """

    def __init__(
        self, *args, stitches: str | int | Sequence[int] = 'anchors', **kwargs
    ) -> None:
        super().__init__(*args, **kwargs)
        self.selection = Selection(stitches)
        if isinstance(self.runner.model, nn.Module):  # FlexibleRunner builds it later
            self._selected_ids()  # at once: the first validation may be hours away

    def run(self) -> dict[str, float]:
        runner = self.runner
        runner.call_hook('before_val')
        runner.call_hook('before_val_epoch')
        runner.model.eval()
        buffers = MetricBuffers(self.evaluator, self._selected_ids())
        with own_statistics(runner, buffers.ids):
            run_one_pass(runner, 'val', self.dataloader, buffers, self.fp16)
        scores = buffers.scores(runner, len(self.dataloader.dataset))
        metrics = _flatten({i: found.metrics for i, found in scores.items()})
        runner.call_hook('after_val_epoch', metrics=metrics)
        runner.call_hook('after_val')
        return metrics

    def _selected_ids(self) -> tuple[int, ...]:
        space = find_stitched_backbone(self.runner.model).space
        ids = self.selection.select(space)
        check_saved(self.evaluator, 'val_evaluator', len(ids))
        return ids


@register(LOOPS)
class StitchTestLoop(TestLoop):
    """Tests the listed stitches in one pass and reports them with their costs.

    Prints a table and writes ``stitches.json``, ``pareto.png`` and, for metrics that
    are known image by image, ``per_image.npz``; see :class:`ImageScores`. Scores of an
    interrupted test stay in ``partial_test`` of the work directory.

    Args:
        runner: The runner.
        *args: See mmengine's ``TestLoop``.
        stitches: See :class:`snnet_mm.stitching.Selection`.
        input_size: See :func:`cost_table`.
        sizes: Heights and widths to test at, one after the other: images, of the
            largest size or above, are resized to it, and every size has a folder of its
            own, such as ``168x238``, in that of the report. By default as they are.
        results: A ``stitches.json`` of the same stitching space, which ``'pareto'`` and
            budgets choose by; see :func:`snnet_mm.stitching.pick`.
        costs: A ``costs.json`` of ``tools/analysis_tools/stitch_table.py``, or one for
            each size, whose measured costs budgets choose by and the report holds; of
            one for each precision budgets choose by all, and the report has the first.
        metric: The metric that ranks stitches, such as ``'coco/segm_mAP'``; by default
            that of :func:`key_metric`.
        lower_is_better: Metrics that are better when lower, ``'none'`` if none are;
            asked for where the direction of a metric is not known.
        out_dir: Folder of the report; by default that of the log.
        quiet: Whether to write the report without printing it.
        stitches_per_pass: Evaluate at most so many stitches in one pass over the data,
            which bounds the memory of collected results.
        resume: Whether to keep the scores of an interrupted test of the same model,
            data and config; others are removed.
        limit: Use only so many images, evenly spread over the data set.
        screen: First look at all stitches on so many images, evenly spread, then
            evaluate the anchors and the best of every budget group on everything.
        keep: How many stitches of a budget group (ten equal parts of the FLOPs range)
            pass the screening.
        recalibrate_bn: Before the test, estimate the batch norm statistics of the model
            anew for every stitch, on so many training images; they are written to
            ``bn_statistics.pth``. Training mixes those of all stitches.
        show_dir: Folder for pictures of all predictions, with a folder per stitch.
        show: Whether to show each prediction in a window.
        wait_time: Seconds that a window stays.
        **kwargs: See mmengine's ``TestLoop``.
    """

    def __init__(
        self,
        runner: Runner,
        *args,
        stitches: str | int | Sequence[int] = 'anchors',
        input_size: Sequence[int] | None = None,
        sizes: Sequence[Sequence[int]] = (),
        results: str | os.PathLike | None = None,
        costs: str | os.PathLike | Sequence[str] | None = None,
        metric: str | None = None,
        lower_is_better: Sequence[str] | None = None,
        out_dir: str | os.PathLike | None = None,
        quiet: bool = False,
        stitches_per_pass: int = 32,
        resume: bool = False,
        limit: int | None = None,
        screen: int | None = None,
        keep: int = 3,
        recalibrate_bn: int | None = None,
        show_dir: str | os.PathLike | None = None,
        show: bool = False,
        wait_time: float = 0,
        **kwargs,
    ) -> None:
        chosen_by = results, costs, metric, lower_is_better
        self.selection = Selection(stitches, *chosen_by)
        if isinstance(runner.model, nn.Module):  # before the data are loaded
            space = find_stitched_backbone(runner.model).space
            self.selection.check(space, counted=True)
        super().__init__(runner, *args, **kwargs)
        self.input_size, self.sizes = input_size, sizes
        self.metric, self.lower_is_better = metric, lower_is_better
        self.out_dir = Path(self.runner.log_dir if out_dir is None else out_dir)
        self.quiet = quiet
        self.stitches_per_pass, self.resume = stitches_per_pass, resume
        self.limit, self.screen, self.keep = limit, screen, keep
        self.recalibrate_bn = recalibrate_bn
        for name in ('stitches_per_pass', 'limit', 'screen', 'keep', 'recalibrate_bn'):
            if (number := getattr(self, name)) is not None:
                check(is_whole(number, 1), f'test_cfg.{name}', number, '1 or more')
        enough = not (limit and screen) or limit > screen
        check(enough, 'test_cfg.limit', limit, f'more than the {screen} of screen')
        self.draw = None
        if show or show_dir is not None:
            window = dict(show=show, wait_time=wait_time)
            self.draw = PredictionDrawer(self.runner.visualizer, show_dir, **window)

    def run(self) -> dict[str, float]:
        runner = self.runner
        main = is_main_process()
        with work_dir_lock(runner.work_dir, 'test') if main else nullcontext():
            runner.call_hook('before_test')
            runner.call_hook('before_test_epoch')
            runner.model.eval()
            metrics = self._run_at_all_sizes()
            with quiet_terminal(runner.logger):
                runner.call_hook('after_test_epoch', metrics=metrics)
            runner.call_hook('after_test')
        return metrics

    def _run_at_all_sizes(self) -> dict[str, float]:
        runner, dataset = self.runner, self.dataloader.dataset
        sizes = check_sizes(runner.model, self.sizes, 'test_cfg.sizes')
        if self.metric is not None:
            check_metric(runner, self.dataloader, self.evaluator, self.metric)
        hook = statistics_hook(runner)
        identity = identify(runner, dataset, hook.statistics if hook else {})
        folder = Path(runner.work_dir, 'partial_test')
        partial = PartialResults(folder, identity, self.resume, runner.logger)
        metrics, reports = {}, []
        for size in sizes or (None,):
            try:
                reports.append(self._run_at(size, partial))
            except NoMetricsError as error:
                runner.logger.warning(f'No report is written: {error}')
                continue
            found = _flatten({r.id: r.metrics for r in reports[-1].stitches})
            at = f'{size_name(size)}/' if size else ''
            metrics |= {at + name: value for name, value in found.items()}
        set_input_size(runner.model, None)
        if len(reports) > 1 and is_main_process():
            report_sizes(reports, self.out_dir)
        partial.remove()
        return metrics

    def _run_at(self, size: Size | None, partial: PartialResults) -> StitchResults:
        """Test and report stitches on images of a size, or as they are."""
        runner, scores = self.runner, {}
        set_input_size(runner.model, size)
        folder = self.out_dir / size_name(size) if size else self.out_dir
        costs, ids = self._costs_and_ids(size)
        self._check_metrics(ids)

        def evaluate(ids: Sequence[int], limit: int | None) -> StitchResults:
            with self._watched_sizes(costs.input_size):
                found = self._evaluate(ids, limit, size, partial)
            scores.update(found)
            return self._results(found, costs)

        anew = None
        if self.recalibrate_bn is not None:
            anew = recalibrated(runner, self.recalibrate_bn, ids, costs.scope)
            if is_main_process():
                with atomic_path(folder / 'bn_statistics.pth') as temporary:
                    torch.save(anew, temporary)
        with own_statistics(runner, ids, anew):
            report = self._screen_and_evaluate(ids, evaluate)
        if is_main_process():
            report_stitches(report, folder, self.quiet)
            if size is None and len(report.stitches) == len(self._space):
                link_latest(folder / 'stitches.json', runner.work_dir)
            images = [scores[r.id].images for r in report.complete]
            save_image_scores(images, report, folder / 'per_image.npz')
        return report

    @property
    def _space(self) -> StitchingSpace:
        return find_stitched_backbone(self.runner.model).space

    def _costs_and_ids(self, size: Size | None) -> tuple[CostTable, tuple[int, ...]]:
        """Return the costs of all stitches, and the stitches to test."""
        model, seed = self.runner.model, self.runner.seed
        size = size or self.input_size or size_of_images(model, self.dataloader, seed)
        counted = cost_table(model, size)
        known = self.selection.costs_at(counted)[0]
        images, log = size_name(known.input_size), self.runner.logger.info
        return known, self.selection.select(
            self._space, counted, lambda reason: log(f'{reason}; images of {images}')
        )

    def _check_metrics(self, ids: Sequence[int]) -> None:
        """Raise for metrics that would be wrong, or would overwrite predictions."""
        number = len(ids) * max(len(self.sizes), 1)
        check_saved(self.evaluator, 'test_evaluator', number)
        if self.limit or self.screen:
            check_partial(self.evaluator, '--limit, --screen')

    def _screen_and_evaluate(
        self, ids: Sequence[int], evaluate: Evaluate
    ) -> StitchResults:
        """Evaluate stitches on all images, or those that pass a screening."""
        if self.screen is None:
            return evaluate(ids, self.limit)
        screened = evaluate(ids, self.screen)
        kept = best_per_budget_group(screened, self.keep)
        self.runner.logger.info(
            f'{len(kept)} of {len(ids)} stitches passed the screening on '
            f'{screened.stitches[0].num_images} images: {list(kept)}'
        )
        return screened.updated_by(evaluate(kept, self.limit))

    def _evaluate(
        self,
        ids: Sequence[int],
        limit: int | None,
        size: Size | None,
        partial: PartialResults,
    ) -> dict[int, StitchScores]:
        """Evaluate the stitches that have no scores yet, one group after the other."""
        dataloader = (
            self.dataloader if limit is None else spread(self.dataloader, limit)
        )
        number, space = len(dataloader.dataset), self._space
        keys = {i: (i, number, size) for i in ids}
        left = [space[i] for i in ids if keys[i] not in partial.scores]
        left = [stitch.id for stitch in visiting_order(left)]
        for begin in range(0, len(left), self.stitches_per_pass):
            group = left[begin : begin + self.stitches_per_pass]
            buffers = MetricBuffers(self.evaluator, group)
            on = dataloader, buffers, self.fp16, self.draw
            run_one_pass(self.runner, 'test', *on)
            found = buffers.scores(self.runner, number, self.metric)
            partial.add({keys[i]: of_stitch for i, of_stitch in found.items()})
        return {i: partial.scores[key] for i, key in keys.items()}

    def _results(
        self, scores: Mapping[int, StitchScores], costs: CostTable
    ) -> StitchResults:
        metrics = {i: of_stitch.metrics for i, of_stitch in scores.items()}
        number, total = next(iter(scores.values())).num_images, self.dataloader.dataset
        results = StitchResults.collect(
            self._space, costs, metrics, number, self.lower_is_better
        ).ranked_by(self.metric)
        return replace(results, data_size=len(total) if number < len(total) else None)

    @contextmanager
    def _watched_sizes(self, counted: Size) -> Iterator[None]:
        """Warn if the network sees images of another size than costs are counted at."""
        seen = set()
        backbone = find_stitched_backbone(self.runner.model)
        with backbone.register_forward_pre_hook(
            lambda b, inputs: seen.add(b.input_size or tuple(inputs[0].shape[-2:]))
        ):
            yield
        if len(seen) == 1 and seen != {tuple(counted)}:
            self.runner.logger.warning(
                f'The network saw images of {size_name(seen.pop())}, but costs are '
                f'counted at {size_name(counted)} '
                '(config key: test_cfg.input_size)'
            )


def _flatten(metrics: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    return {
        f'stitch_{stitch_id}/{name}': value
        for stitch_id, values in metrics.items()
        for name, value in values.items()
    }
