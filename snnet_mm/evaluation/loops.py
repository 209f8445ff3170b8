"""Loops that evaluate any list of stitches in one pass over the data."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch
from mmengine.dataset import BaseDataset, DefaultSampler
from mmengine.dist import get_world_size, is_main_process
from mmengine.registry import LOOPS
from mmengine.runner import Runner, TestLoop, ValLoop
from torch.utils.data import DataLoader

from snnet_mm.models import (
    PerStitchBN,
    find_stitched_backbone,
    recalibrate_bn,
    set_stitch,
)
from snnet_mm.stitching import (
    CostTable,
    StitchResults,
    best_per_budget_group,
    select_stitches,
)
from snnet_mm.utils import atomic_path, is_whole, quiet_terminal

from .costs import cost_table
from .metric_results import MetricResults
from .one_pass import OnePass
from .partial_evaluation import PartialEvaluation, identify, identify_data
from .prediction_drawer import PredictionDrawer
from .stitch_report import report_stitches

Metrics = dict[int, dict[str, float]]
# By what metrics know that they are to save predictions: mmseg's and ours, mmdet's, and
# mmengine's for classifiers.
SAVING_KEYS = ('output_dir', 'outfile_prefix', 'out_file_path')


@LOOPS.register_module()
class StitchValLoop(ValLoop):
    """Validates the listed stitches in one pass over the data.

    Metrics are named ``stitch_<id>/<metric>``.

    Args:
        *args: See mmengine's ``ValLoop``.
        stitches: See :func:`snnet_mm.stitching.select_stitches`.
        **kwargs: See mmengine's ``ValLoop``.

    Raises:
        ValueError: If the stitches are not in the space of the model.
    """

    def __init__(
        self, *args, stitches: str | int | Sequence[int] = 'anchors', **kwargs
    ) -> None:
        super().__init__(*args, **kwargs)
        self.stitches = stitches
        # At once: the first validation may be hours away.
        select_stitches(find_stitched_backbone(self.runner.model).space, stitches)

    def run(self) -> dict[str, float]:
        """Launch validation."""
        runner = self.runner
        runner.call_hook('before_val')
        runner.call_hook('before_val_epoch')
        runner.model.eval()
        backbone = find_stitched_backbone(runner.model)
        active = backbone.active_stitch
        ids = select_stitches(backbone.space, self.stitches)
        results = MetricResults(self.evaluator, ids)
        try:
            OnePass(runner, 'val', self.fp16).run(self.dataloader, results)
        finally:
            set_stitch(runner.model, active.id)
        metrics = _flatten(_score(runner, results, len(self.dataloader.dataset)))
        runner.call_hook('after_val_epoch', metrics=metrics)
        runner.call_hook('after_val')
        return metrics


@LOOPS.register_module()
class StitchTestLoop(TestLoop):
    """Tests the listed stitches in one pass and reports them with their costs.

    Prints a table and writes ``stitches.json`` and ``pareto.png``. What an interrupted
    test has collected stays in ``partial_test`` of the work directory.

    Args:
        *args: See mmengine's ``TestLoop``.
        stitches: See :func:`snnet_mm.stitching.select_stitches`.
        input_size: Height and width that costs are counted at; by default the fixed
            size of the model's data preprocessor.
        results: A ``stitches.json`` of the same stitching space, which ``'pareto'`` and
            budgets choose by; see :func:`snnet_mm.stitching.pick`.
        costs: A ``costs.json`` of ``tools/analysis_tools/stitch_table.py``, whose
            measured costs budgets choose by and the report holds; by default FLOPs and
            parameters are counted.
        out_dir: Folder of the report; by default that of the log.
        stitches_per_pass: Evaluate at most so many stitches in one pass over the data,
            which bounds the disk space of collected results; by default all.
        resume: Whether to go on with the interrupted test of the same model, data and
            config.
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

    Raises:
        ValueError: If a number of images or stitches is not positive, metrics are to
            save the predictions of several stitches into one folder, a metric that
            knows of all images is to be computed on fewer, or the measured costs are of
            another model or input size.
    """

    def __init__(
        self,
        *args,
        stitches: str | int | Sequence[int] = 'anchors',
        input_size: Sequence[int] | None = None,
        results: str | os.PathLike | None = None,
        costs: str | os.PathLike | None = None,
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
        _check_positive(
            stitches_per_pass=stitches_per_pass,
            limit=limit,
            screen=screen,
            keep=keep,
            recalibrate_bn=recalibrate_bn,
        )
        self.stitches, self.input_size = stitches, input_size
        self.results, self.costs = results, costs
        self.out_dir = self.runner.log_dir if out_dir is None else out_dir
        self.stitches_per_pass, self.resume = stitches_per_pass, resume
        self.limit, self.screen, self.keep = limit, screen, keep
        self.recalibrate_bn = recalibrate_bn
        self.draw = None
        if show or show_dir is not None:
            folder = None if show_dir is None else Path(show_dir)
            self.draw = PredictionDrawer(
                self.runner.visualizer, folder, show, wait_time
            )

    def run(self) -> dict[str, float]:
        """Launch test."""
        runner = self.runner
        runner.call_hook('before_test')
        runner.call_hook('before_test_epoch')
        runner.model.eval()
        self._under_way: list[PartialEvaluation] = []
        self._backbone = find_stitched_backbone(runner.model)
        active = self._backbone.active_stitch
        # Counted first: a wrong input size must not cost an evaluation.
        self._costs = self._known_costs()
        ids = self._selected_ids()
        _check_saved_predictions(self.evaluator.metrics, ids)
        if self.limit or self.screen:
            _check_parts_count(self.evaluator.metrics)
        self._identity = identify(runner) | dict(recalibrate_bn=self.recalibrate_bn)
        bn = self._recalibrate(ids) if self.recalibrate_bn else None
        try:
            results = self._screen_and_evaluate(ids)
        finally:
            if bn is not None:
                bn.detach()
            set_stitch(runner.model, active.id)
        if is_main_process():
            report_stitches(results, self.out_dir)
        for state in self._under_way:
            state.remove()
        metrics = _flatten({r.id: r.metrics for r in results.stitches})
        with quiet_terminal(runner.logger):
            runner.call_hook('after_test_epoch', metrics=metrics)
        runner.call_hook('after_test')
        return metrics

    def _known_costs(self) -> CostTable:
        counted = cost_table(self.runner.model, self.input_size)
        if self.costs is None:
            return counted
        measured = CostTable.read(self.costs)
        keys = '(config key: test_cfg.costs; option: --costs)'
        measured.check_same_model(counted, f'{self.costs} {keys}')
        return measured

    def _selected_ids(self) -> tuple[int, ...]:
        space = self._backbone.space
        if self.results is None:
            return select_stitches(space, self.stitches, self._costs)
        known = StitchResults.read(self.results, space)
        # Results may hold latency themselves.
        costs = None if self.costs is None else self._costs
        return select_stitches(space, self.stitches, costs, known)

    def _screen_and_evaluate(self, ids: Sequence[int]) -> StitchResults:
        """Results of all stitches, on all images or those of the screening."""
        if self.screen is None:
            return self._evaluate(ids, self.limit)
        screened = self._evaluate(ids, self.screen)
        kept = best_per_budget_group(screened, self.keep)
        self.runner.logger.info(
            f'{len(kept)} of {len(ids)} stitches passed the screening on '
            f'{screened.stitches[0].num_images} images: {", ".join(map(str, kept))}'
        )
        return screened.updated_by(self._evaluate(kept, self.limit))

    def _recalibrate(self, ids: Sequence[int]) -> PerStitchBN:
        """Batch norm statistics of every stitch, active until they are detached."""
        train_cfg = self.runner.cfg.get('train_dataloader')
        if train_cfg is None:
            raise ValueError(
                'recalibrating batch norm needs training images, and the config has '
                'none (config key: train_dataloader; option: --recalibrate-bn)'
            )
        train = Runner.build_dataloader(train_cfg, seed=self.runner.seed)
        batch_size = train.batch_size * get_world_size()
        batches = islice(train, math.ceil(self.recalibrate_bn / batch_size))
        self.runner.logger.info(
            f'Recalibrating batch norm for {len(ids)} stitches on '
            f'{self.recalibrate_bn} images'
        )
        statistics = recalibrate_bn(self.runner.model, batches, ids)
        if is_main_process():
            with atomic_path(Path(self.out_dir) / 'bn_statistics.pth') as temporary:
                torch.save(statistics, temporary)
        return PerStitchBN(self.runner.model, statistics).attach()

    def _evaluate(self, ids: Sequence[int], limit: int | None) -> StitchResults:
        """Results of stitches on at most ``limit`` images."""
        dataloader = (
            self.dataloader if limit is None else spread(self.dataloader, limit)
        )
        num_images = len(dataloader.dataset)
        state = PartialEvaluation(
            Path(self.runner.work_dir) / 'partial_test',
            self._identity | identify_data(dataloader),
            self.resume,
        )
        self._under_way.append(state)
        left = [i for i in ids if i not in state.finished]
        one_pass = OnePass(self.runner, 'test', self.fp16, self.draw)
        per_pass = self.stitches_per_pass or max(len(left), 1)
        for begin in range(0, len(left), per_pass):
            collected = MetricResults(
                self.evaluator, left[begin : begin + per_pass], state.folder
            )
            if collected.num_batches:
                self.runner.logger.info(
                    f'Resuming behind batch {collected.num_batches}'
                )
            one_pass.run(dataloader, collected)
            state.finish(_score(self.runner, collected, num_images))
        metrics = {i: state.finished[i] for i in ids}
        space = self._backbone.space
        return StitchResults.collect(space, self._costs, metrics, num_images)


def spread(dataloader: DataLoader, num_images: int) -> DataLoader:
    """The same data loader over a few images, evenly spread over its data set.

    Raises:
        ValueError: If the data set has no subsets.
    """
    dataset = dataloader.dataset
    # Wrappers such as mmengine's ConcatDataset have no subsets.
    if not isinstance(dataset, BaseDataset):
        raise ValueError(
            f'{type(dataset).__name__} cannot be tested on fewer images; allowed are '
            'data sets without a wrapper (config keys: test_cfg.limit, '
            'test_cfg.screen; options: --limit, --screen)'
        )
    total = len(dataset)
    number = min(num_images, total)
    subset = dataset.get_subset([i * total // number for i in range(number)])
    return DataLoader(
        subset,
        batch_size=dataloader.batch_size,
        sampler=DefaultSampler(subset, shuffle=False),
        num_workers=dataloader.num_workers,
        collate_fn=dataloader.collate_fn,
        worker_init_fn=dataloader.worker_init_fn,
    )


def _score(runner: Runner, results: MetricResults, num_images: int) -> Metrics:
    """Metrics of every stitch; tables of classes go to the log file only."""
    metrics = {}
    for stitch_id in results.ids:
        with quiet_terminal(runner.logger):
            runner.logger.info(f'stitch {stitch_id}:')
            metrics[stitch_id] = results.score(stitch_id, num_images)
    return metrics


def _flatten(by_stitch: Metrics) -> dict[str, float]:
    return {
        f'stitch_{stitch_id}/{name}': value
        for stitch_id, metrics in by_stitch.items()
        for name, value in metrics.items()
    }


def _check_positive(**numbers: int | None) -> None:
    for key, number in numbers.items():
        if number is not None and not is_whole(number, 1):
            raise ValueError(
                f'{key}={number!r}; allowed is 1 or more (config key: test_cfg.{key}; '
                f'option: --{key.replace("_", "-")})'
            )


def _check_saved_predictions(metrics: Sequence, ids: Sequence[int]) -> None:
    """Mm's metrics name saved predictions after the image alone, or not at all."""
    keys = [k for k in SAVING_KEYS if any(getattr(m, k, None) for m in metrics)]
    if len(ids) > 1 and keys:
        raise ValueError(
            f'the predictions of {len(ids)} stitches would overwrite each other; save '
            f'those of one stitch at a time (config key: test_evaluator.{keys[0]}; '
            'option: --out)'
        )


def _check_parts_count(metrics: Sequence) -> None:
    """Mmdet's COCO metrics count images that were left out as missed."""
    for metric in metrics:
        if hasattr(metric, 'img_ids') and not hasattr(metric, 'only_seen_images'):
            raise ValueError(
                f'{type(metric).__name__} cannot be computed on fewer images: it '
                "counts those left out as missed; allowed is type='StitchCocoMetric' "
                '(config key: test_evaluator; options: --limit, --screen)'
            )
