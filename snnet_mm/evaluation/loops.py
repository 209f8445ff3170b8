"""Loops that evaluate any list of stitches in one pass over the data."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from mmengine.dist import get_world_size, is_main_process
from mmengine.registry import LOOPS
from mmengine.runner import Runner, TestLoop, ValLoop
from torch import nn

from snnet_mm.models import (
    find_stitched_backbone,
    gathered,
    recalibrate_bn,
    set_input_size,
)
from snnet_mm.models.per_stitch_bn import Statistics
from snnet_mm.stitching import (
    CostTable,
    NoMetricsError,
    StitchResults,
    best_per_budget_group,
    by_precision,
    select_stitches,
)
from snnet_mm.utils import (
    atomic_path,
    check,
    is_whole,
    link_latest,
    quiet_terminal,
    register,
)

from .costs import cost_table
from .extensions import WHOLE_DATA_METRICS, check_saved, rule_for
from .image_scores import ImageScores
from .one_pass import run_one_pass, spread
from .partial_results import (
    MetricBuffers,
    Metrics,
    PartialEvaluation,
    compute_metrics,
    identify,
    identify_data,
    image_scores_file,
)
from .parts import size_of_images
from .pictures.prediction_drawer import PredictionDrawer
from .search import StitchSearch, check_number, run_search
from .sizes import Size, check_sizes, size_name
from .stitch_statistics import forward_mode, own_statistics
from .tables import report_sizes, report_stitches


@register(LOOPS)
class StitchValLoop(ValLoop):
    """Validates the listed stitches in one pass over the data.

    Metrics are named ``stitch_<id>/<metric>``.

    Args:
        *args: See mmengine's ``ValLoop``.
        stitches: See :func:`snnet_mm.stitching.select_stitches`.
        **kwargs: See mmengine's ``ValLoop``.
    """

    def __init__(
        self, *args, stitches: str | int | Sequence[int] = 'anchors', **kwargs
    ) -> None:
        super().__init__(*args, **kwargs)
        self.stitches = stitches
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
        number = len(self.dataloader.dataset)
        metrics = _flatten(compute_metrics(runner, buffers, number))
        runner.call_hook('after_val_epoch', metrics=metrics)
        runner.call_hook('after_val')
        return metrics

    def _selected_ids(self) -> tuple[int, ...]:
        space = find_stitched_backbone(self.runner.model).space
        ids = select_stitches(space, self.stitches)
        check_saved(self.evaluator, 'val_evaluator', len(ids))
        return ids


@register(LOOPS)
class StitchTestLoop(TestLoop):
    """Tests the listed stitches in one pass and reports them with their costs.

    Prints a table and writes ``stitches.json``, ``pareto.png`` and, for metrics that
    are known image by image, ``per_image.npz``; see :class:`ImageScores`. What an
    interrupted test has collected stays in ``partial_test`` of the work directory.

    Args:
        *args: See mmengine's ``TestLoop``.
        stitches: See :func:`snnet_mm.stitching.select_stitches`; ``'search'`` for the
            best stitches within all budgets, of which few are evaluated and the others
            predicted; see :class:`StitchSearch`.
        evaluate: How many stitches a search evaluates, anchors included.
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
        stitches_per_pass: Evaluate at most so many stitches in one pass over the data,
            which bounds the disk space of collected results; by default all.
        resume: Whether to go on with the interrupted test of the same model, data and
            config.
        limit: Use only so many images, evenly spread over the data set.
        screen: First look at all stitches on so many images, evenly spread, then
            evaluate the anchors and the best of every budget group on everything; a
            search begins with the best ones and learns from the scores.
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
        *args,
        stitches: str | int | Sequence[int] = 'anchors',
        evaluate: int | None = None,
        input_size: Sequence[int] | None = None,
        sizes: Sequence[Sequence[int]] = (),
        results: str | os.PathLike | None = None,
        costs: str | os.PathLike | Sequence[str] | None = None,
        metric: str | None = None,
        lower_is_better: Sequence[str] | None = None,
        out_dir: str | os.PathLike | None = None,
        stitches_per_pass: int | None = None,
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
        super().__init__(*args, **kwargs)
        self.stitches, self.input_size = stitches, input_size
        self.evaluate, self.sizes = evaluate, sizes
        self.known_results = results
        self.known_costs = [costs] if isinstance(costs, str | os.PathLike) else costs
        self.metric, self.lower_is_better = metric, lower_is_better
        self.out_dir = Path(self.runner.log_dir if out_dir is None else out_dir)
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
        runner.call_hook('before_test')
        runner.call_hook('before_test_epoch')
        runner.model.eval()
        self._space = find_stitched_backbone(runner.model).space
        sizes, metrics = check_sizes(runner.model, self.sizes, 'test_cfg.sizes'), {}
        self._under_way: list[PartialEvaluation] = []
        reports = []
        for size in sizes or (None,):
            try:
                reports.append(self._run_at(size))
            except NoMetricsError as error:
                runner.logger.warning(f'No report is written: {error}')
                continue
            found = _flatten({r.id: r.metrics for r in reports[-1].measured})
            at = f'{size_name(size)}/' if size else ''
            metrics |= {at + name: value for name, value in found.items()}
        set_input_size(runner.model, None)
        if len(reports) > 1 and is_main_process():
            report_sizes(reports, self.out_dir)
        for partial in self._under_way:
            partial.remove()
        with quiet_terminal(runner.logger):
            runner.call_hook('after_test_epoch', metrics=metrics)
        runner.call_hook('after_test')
        return metrics

    def _run_at(self, size: Size | None) -> StitchResults:
        """Test and report stitches on images of a size, or as they are."""
        runner = self.runner
        set_input_size(runner.model, size)
        self._report_dir = self.out_dir / size_name(size) if size else self.out_dir
        ids = self._selected_ids(size)
        self._check_metrics(ids)
        self._identity = identify(runner) | dict(recalibrate_bn=self.recalibrate_bn)
        self._identity |= dict(size=size_name(size)) if size else {}
        run = self._search if self.stitches == 'search' else self._screen_and_evaluate
        anew = None if self.recalibrate_bn is None else self._recalibrate(ids)
        with own_statistics(runner, ids, anew) as own:
            self._identity['batch norm statistics'] = own
            report = run(ids)
        if is_main_process():
            report_stitches(report, self._report_dir)
            if size is None and len(report.measured) == len(self._space):
                link_latest(self._report_dir / 'stitches.json', runner.work_dir)
            self._save_image_scores(report)
        return report

    def _save_image_scores(self, report: StitchResults) -> None:
        folder = self._under_way[-1].folder
        files = [image_scores_file(folder, r.id) for r in report.complete]
        found = [ImageScores.read(file) for file in files if file.exists()]
        # A resumed test may have had another ranking metric before.
        if sum(scores.metric == report.metric for scores in found) == len(files):
            ImageScores.stack(found).save(self._report_dir / 'per_image.npz')

    def _selected_ids(self, size: Size | None) -> tuple[int, ...]:
        """Return the stitches to test, and keep the costs of all."""
        model, seed = self.runner.model, self.runner.seed
        size = size or self.input_size or size_of_images(model, self.dataloader, seed)
        with gathered(model):
            self._costs = costs = cost_table(model, size)
        if self.known_costs is not None:
            tables = {file: CostTable.read(file) for file in self.known_costs}
            same = [f for f, t in tables.items() if t.input_size == costs.input_size]
            same = same or self.known_costs[:1]
            keys = '(config key: test_cfg.costs; option: --costs)'
            for file in same:
                tables[file].check_same_model(costs, f'{file} {keys}')
            self._costs = tables[same[0]]
            costs = by_precision([tables[file] for file in same])
        searched = self.stitches == 'search'
        if searched or self.evaluate is not None:
            check_number(self._space, self.evaluate, searched)
        if searched:
            return self._space.ids
        results = None
        if self.known_results is not None:
            known = self.known_results, self._space, self.lower_is_better
            results = StitchResults.read(*known).ranked_by(self.metric)
            if self.known_costs is None:  # results may hold latency themselves
                costs = None
        chosen = self._space, self.stitches, costs, results
        return select_stitches(*chosen, say=self._say_choice)

    def _say_choice(self, reason: str) -> None:
        size = size_name(self._costs.input_size)
        self.runner.logger.info(f'{reason}; images of {size}')

    def _check_metrics(self, ids: Sequence[int]) -> None:
        """Refuse metrics that would be wrong, or would overwrite predictions."""
        number = len(ids) * max(len(self.sizes), 1)
        check_saved(self.evaluator, 'test_evaluator', number)
        if not self.limit and not self.screen:
            return
        for metric in self.evaluator.metrics:
            instead = rule_for(metric, WHOLE_DATA_METRICS)
            allowed = f'{instead}, which does not count images left out as missed '
            allowed += '(--limit, --screen)'
            check(not instead, 'test_evaluator', type(metric).__name__, allowed)

    def _recalibrate(self, ids: Sequence[int]) -> Statistics:
        """Estimate batch norm statistics on training images, and write them."""
        runner, number = self.runner, self.recalibrate_bn
        train_cfg = runner.cfg.get('train_dataloader')
        allowed = 'training images, to recalibrate batch norm with'
        check(train_cfg, 'train_dataloader', train_cfg, allowed)
        train = Runner.build_dataloader(train_cfg, seed=runner.seed)
        runner.logger.info(
            f'Recalibrating batch norm for {len(ids)} stitches on {number} images'
        )
        together = (train.batch_size or 1) * get_world_size()
        batches = islice(train, math.ceil(number / together))
        mode = forward_mode(runner.model, self._costs.scope)
        statistics = recalibrate_bn(runner.model, batches, ids, mode)
        if is_main_process():
            with atomic_path(self._report_dir / 'bn_statistics.pth') as temporary:
                torch.save(statistics, temporary)
        return statistics

    def _screen_and_evaluate(self, ids: Sequence[int]) -> StitchResults:
        """Evaluate stitches on all images, or those that pass a screening."""
        if self.screen is None:
            return self._evaluate(ids, self.limit)
        screened = self._evaluate(ids, self.screen)
        kept = best_per_budget_group(screened, self.keep)
        self.runner.logger.info(
            f'{len(kept)} of {len(ids)} stitches passed the screening on '
            f'{screened.stitches[0].num_images} images: {list(kept)}'
        )
        return screened.updated_by(self._evaluate(kept, self.limit))

    def _search(self, ids: Sequence[int]) -> StitchResults:
        screened = self.screen and self._evaluate(ids, self.screen)
        return run_search(
            lambda ids: self._evaluate(ids, self.limit),
            StitchSearch(self._space, self._costs, screened),
            self.evaluate,
            self.runner.logger.info,
        )

    def _evaluate(self, ids: Sequence[int], limit: int | None) -> StitchResults:
        runner, dataloader = self.runner, self.dataloader
        if limit is not None:
            dataloader = spread(dataloader, limit)
        num_images = len(dataloader.dataset)
        identity = self._identity | identify_data(dataloader)
        same = (p for p in self._under_way if p.identity == identity)
        if (partial := next(same, None)) is None:
            folder, first = Path(runner.work_dir, 'partial_test'), not self._under_way
            partial = PartialEvaluation(folder, identity, self.resume, first)
            self._under_way.append(partial)
        left = [i for i in ids if i not in partial.finished]
        per_pass = self.stitches_per_pass or max(len(left), 1)
        for begin in range(0, len(left), per_pass):
            together = left[begin : begin + per_pass]
            buffers = MetricBuffers(
                self.evaluator, together, partial.folder, metric=self.metric
            )
            if buffers.num_batches:
                runner.logger.info(f'Resuming after batch {buffers.num_batches}')
            with self._watched_sizes():
                run_one_pass(runner, 'test', dataloader, buffers, self.fp16, self.draw)
            partial.finish(compute_metrics(runner, buffers, num_images))
        metrics = {i: partial.finished[i] for i in ids}
        results = StitchResults.collect(
            self._space, self._costs, metrics, num_images, self.lower_is_better
        ).ranked_by(self.metric)
        total = len(self.dataloader.dataset)
        return replace(results, data_size=total if num_images < total else None)

    @contextmanager
    def _watched_sizes(self) -> Iterator[None]:
        """Warn if the network sees images of another size than costs are counted at."""
        seen = set()
        backbone = find_stitched_backbone(self.runner.model)
        with backbone.register_forward_pre_hook(
            lambda b, inputs: seen.add(b.input_size or tuple(inputs[0].shape[-2:]))
        ):
            yield
        if len(seen) == 1 and seen != {tuple(self._costs.input_size)}:
            self.runner.logger.warning(
                f'The network saw images of {size_name(seen.pop())}, but costs are '
                f'counted at {size_name(self._costs.input_size)} '
                '(config key: test_cfg.input_size)'
            )


def _flatten(metrics: Metrics) -> dict[str, float]:
    return {
        f'stitch_{stitch_id}/{name}': value
        for stitch_id, values in metrics.items()
        for name, value in values.items()
    }
