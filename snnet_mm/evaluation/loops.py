"""Loops that evaluate any list of stitches in one pass over the data."""

import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path

import torch
from mmengine.dataset import BaseDataset, DefaultSampler
from mmengine.dist import get_world_size, is_main_process
from mmengine.registry import LOOPS
from mmengine.runner import Runner, TestLoop, ValLoop
from torch import nn
from torch.utils.data import DataLoader

from snnet_mm.models import (
    PerStitchBN,
    find_stitched_backbone,
    gathered,
    recalibrate_bn,
)
from snnet_mm.stitching import (
    CostTable,
    StitchResults,
    best_per_budget_group,
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
from .extensions import SAVING_KEYS, WHOLE_DATA_METRICS
from .image_scores import ImageScores
from .one_pass import run_one_pass
from .partial_results import (
    MetricBuffers,
    Metrics,
    PartialEvaluation,
    identify,
    identify_data,
    image_scores_file,
)
from .parts import size_of_images
from .pictures.prediction_drawer import PredictionDrawer
from .search import StitchSearch, check_number, run_search
from .stitch_statistics import forward_mode, own_statistics
from .tables import report_stitches


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
        """Launch validation."""
        runner = self.runner
        runner.call_hook('before_val')
        runner.call_hook('before_val_epoch')
        runner.model.eval()
        buffers = MetricBuffers(self.evaluator, self._selected_ids())
        with own_statistics(runner, buffers.ids):
            run_one_pass(runner, 'val', self.dataloader, buffers, self.fp16)
        metrics = _flatten(_compute(runner, buffers, len(self.dataloader.dataset)))
        runner.call_hook('after_val_epoch', metrics=metrics)
        runner.call_hook('after_val')
        return metrics

    def _selected_ids(self) -> tuple[int, ...]:
        space = find_stitched_backbone(self.runner.model).space
        return select_stitches(space, self.stitches)


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
        results: A ``stitches.json`` of the same stitching space, which ``'pareto'`` and
            budgets choose by; see :func:`snnet_mm.stitching.pick`.
        costs: A ``costs.json`` of ``tools/analysis_tools/stitch_table.py``, whose
            measured costs budgets choose by and the report holds.
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
        results: str | os.PathLike | None = None,
        costs: str | os.PathLike | None = None,
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
        self.evaluate = evaluate
        self.known_results, self.known_costs = results, costs
        self.lower_is_better = lower_is_better
        self.out_dir = Path(self.runner.log_dir if out_dir is None else out_dir)
        self.stitches_per_pass, self.resume = stitches_per_pass, resume
        self.limit, self.screen, self.keep = limit, screen, keep
        self.recalibrate_bn = recalibrate_bn
        for name in ('stitches_per_pass', 'limit', 'screen', 'keep', 'recalibrate_bn'):
            if (number := getattr(self, name)) is not None:
                check(is_whole(number, 1), f'test_cfg.{name}', number, '1 or more')
        self.draw = None
        if show or show_dir is not None:
            window = dict(show=show, wait_time=wait_time)
            self.draw = PredictionDrawer(self.runner.visualizer, show_dir, **window)

    def run(self) -> dict[str, float]:
        """Launch test."""
        runner = self.runner
        runner.call_hook('before_test')
        runner.call_hook('before_test_epoch')
        runner.model.eval()
        self._space = find_stitched_backbone(runner.model).space
        ids = self._selected_ids()
        self._check_metrics(ids)
        self._identity = identify(runner) | dict(recalibrate_bn=self.recalibrate_bn)
        self._under_way: list[PartialEvaluation] = []
        anew = self.recalibrate_bn is not None
        run = self._search if self.stitches == 'search' else self._screen_and_evaluate
        with self._recalibrated(ids) if anew else own_statistics(runner, ids) as own:
            self._identity['batch norm statistics'] = own
            report = run(ids)
        if is_main_process():
            report_stitches(report, self.out_dir)
            if len(report.measured) == len(self._space):
                link_latest(self.out_dir / 'stitches.json', runner.work_dir)
            self._save_image_scores(report)
        for partial in self._under_way:
            partial.remove()
        metrics = _flatten({r.id: r.metrics for r in report.measured})
        with quiet_terminal(runner.logger):
            runner.call_hook('after_test_epoch', metrics=metrics)
        runner.call_hook('after_test')
        return metrics

    def _save_image_scores(self, report: StitchResults) -> None:
        """Write the per-image statistics of stitches tested on all images."""
        folder = self._under_way[-1].folder
        files = [image_scores_file(folder, r.id) for r in report.complete]
        if all(file.exists() for file in files):
            scores = ImageScores.stack([ImageScores.read(file) for file in files])
            scores.save(self.out_dir / 'per_image.npz')

    def _selected_ids(self) -> tuple[int, ...]:
        """Return the stitches to test, and keep the costs of all."""
        model, seed = self.runner.model, self.runner.seed
        size = self.input_size or size_of_images(model, self.dataloader, seed)
        with gathered(model):
            self._costs = costs = cost_table(model, size)
        if self.known_costs is not None:
            self._costs = CostTable.read(self.known_costs)
            keys = '(config key: test_cfg.costs; option: --costs)'
            self._costs.check_same_model(costs, f'{self.known_costs} {keys}')
        searched = self.stitches == 'search'
        if searched or self.evaluate is not None:
            check_number(self._space, self.evaluate, searched)
        if searched:
            return self._space.ids
        if self.known_results is None:
            more = dict(costs=self._costs, say=self._say_choice)
            return select_stitches(self._space, self.stitches, **more)
        known = self.known_results, self._space, self.lower_is_better
        # Results may hold latency themselves.
        costs = None if self.known_costs is None else self._costs
        results = StitchResults.read(*known)
        more = dict(results=results, say=self._say_choice)
        return select_stitches(self._space, self.stitches, costs, **more)

    def _say_choice(self, reason: str) -> None:
        """Log what a budget bounds, and what was chosen within it."""
        size = '{}x{}'.format(*self._costs.input_size)
        self.runner.logger.info(f'{reason}; images of {size}')

    def _check_metrics(self, ids: Sequence[int]) -> None:
        """Refuse metrics that would be wrong, or would overwrite predictions."""
        for metric in self.evaluator.metrics:
            for key in SAVING_KEYS:
                folder = getattr(metric, key, None)
                # mm's names hold the image alone, or not even that.
                ok = len(ids) == 1 or not folder
                what = f'None: {len(ids)} stitches would overwrite each other'
                check(ok, f'test_evaluator.{key}', folder, f'{what} (option: --out)')
            for matches, instead in WHOLE_DATA_METRICS:
                ok = not (self.limit or self.screen) or not matches(metric)
                what = f'{instead}, which does not count images left out as missed'
                name = type(metric).__name__
                check(ok, 'test_evaluator', name, f'{what} (--limit, --screen)')

    @contextmanager
    def _recalibrated(self, ids: Sequence[int]) -> Iterator[None]:
        """Give stitches batch norm statistics of their own."""
        runner, number = self.runner, self.recalibrate_bn
        train_cfg = runner.cfg.get('train_dataloader')
        allowed = 'training images, to recalibrate batch norm with'
        check(train_cfg, 'train_dataloader', train_cfg, allowed)
        train = Runner.build_dataloader(train_cfg, seed=runner.seed)
        runner.logger.info(
            f'Recalibrating batch norm for {len(ids)} stitches on {number} images'
        )
        batches = islice(train, math.ceil(number / train.batch_size / get_world_size()))
        mode = forward_mode(runner.model, self._costs.scope)
        statistics = recalibrate_bn(runner.model, batches, ids, mode)
        if is_main_process():
            with atomic_path(self.out_dir / 'bn_statistics.pth') as temporary:
                torch.save(statistics, temporary)
        norms = PerStitchBN(runner.model, statistics).attach()
        try:
            yield
        finally:
            norms.detach()

    def _screen_and_evaluate(self, ids: Sequence[int]) -> StitchResults:
        """Evaluate stitches on all images, or those that pass a screening."""
        if self.screen is None:
            return self._evaluate(ids, self.limit)
        screened = self._evaluate(ids, self.screen)
        kept = best_per_budget_group(screened, self.keep)
        self.runner.logger.info(
            f'{len(kept)} of {len(ids)} stitches passed the screening on '
            f'{screened.stitches[0].num_images} images: {", ".join(map(str, kept))}'
        )
        return screened.updated_by(self._evaluate(kept, self.limit))

    def _search(self, ids: Sequence[int]) -> StitchResults:
        """Evaluate the most promising stitches, a few per pass; predict the others."""
        screened = self.screen and self._evaluate(ids, self.screen)
        return run_search(
            lambda ids: self._evaluate(ids, self.limit),
            StitchSearch(self._space, self._costs, screened),
            self.evaluate,
            self.runner.logger.info,
        )

    def _evaluate(self, ids: Sequence[int], limit: int | None) -> StitchResults:
        """Evaluate stitches on at most ``limit`` images."""
        runner, dataloader = self.runner, self.dataloader
        if limit is not None:
            dataloader = _spread(dataloader, limit)
        num_images = len(dataloader.dataset)
        identity = self._identity | identify_data(dataloader)
        folder = Path(runner.work_dir) / 'partial_test'
        same = (p for p in self._under_way if p.identity == identity)
        partial = next(same, None)
        if partial is None:
            partial = PartialEvaluation(folder, identity, self.resume)
            self._under_way.append(partial)
        left = [i for i in ids if i not in partial.finished]
        per_pass = self.stitches_per_pass or max(len(left), 1)
        for begin in range(0, len(left), per_pass):
            together = left[begin : begin + per_pass]
            buffers = MetricBuffers(self.evaluator, together, partial.folder)
            if buffers.num_batches:
                runner.logger.info(f'Resuming after batch {buffers.num_batches}')
            with self._watched_sizes():
                run_one_pass(runner, 'test', dataloader, buffers, self.fp16, self.draw)
            partial.finish(_compute(runner, buffers, num_images))
        metrics = {i: partial.finished[i] for i in ids}
        results = StitchResults.collect(
            self._space, self._costs, metrics, num_images, self.lower_is_better
        )
        total = len(self.dataloader.dataset)
        return replace(results, data_size=total if num_images < total else None)

    @contextmanager
    def _watched_sizes(self) -> Iterator[None]:
        """Warn if the network sees images of another size than costs are counted at."""
        seen = set()
        backbone = find_stitched_backbone(self.runner.model)
        with backbone.register_forward_pre_hook(
            lambda _, inputs: seen.add(tuple(inputs[0].shape[-2:]))
        ):
            yield
        if len(seen) == 1 and seen != {tuple(self._costs.input_size)}:
            counted = '{}x{}'.format(*self._costs.input_size)
            self.runner.logger.warning(
                'The network saw images of {}x{}, but costs are counted at '
                '{} (config key: test_cfg.input_size)'.format(*seen.pop(), counted)
            )


def _spread(dataloader: DataLoader, num_images: int) -> DataLoader:
    """Return the same data loader over a few images, evenly spread over its data."""
    dataset, key = dataloader.dataset, 'test_dataloader.dataset'
    # Wrappers such as mmengine's ConcatDataset have no subsets.
    allowed = 'a data set without a wrapper, to take fewer images of (config keys: '
    allowed += 'test_cfg.limit, test_cfg.screen; options: --limit, --screen)'
    check(isinstance(dataset, BaseDataset), key, type(dataset).__name__, allowed)
    total = len(dataset)
    number = min(num_images, total)
    subset = dataset.get_subset([i * total // number for i in range(number)])
    names = 'batch_size', 'num_workers', 'collate_fn', 'worker_init_fn'
    settings = {name: getattr(dataloader, name) for name in names}
    return DataLoader(subset, sampler=DefaultSampler(subset, shuffle=False), **settings)


def _compute(runner: Runner, buffers: MetricBuffers, num_images: int) -> Metrics:
    """Compute metrics of every stitch; tables of classes go to the log file only."""
    metrics = {}
    for stitch_id in buffers.ids:
        with quiet_terminal(runner.logger):
            runner.logger.info(f'stitch {stitch_id}:')
            metrics[stitch_id] = buffers.evaluate(stitch_id, num_images)
    return metrics


def _flatten(metrics: Metrics) -> dict[str, float]:
    return {
        f'stitch_{stitch_id}/{name}': value
        for stitch_id, values in metrics.items()
        for name, value in values.items()
    }
