"""Loops that evaluate any list of stitches."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from mmengine.dist import is_main_process
from mmengine.registry import LOOPS
from mmengine.runner import TestLoop, ValLoop

from snnet_mm.analysis import cost_table
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.stitching import StitchResults, select_stitches
from snnet_mm.utils import only_warnings
from snnet_mm.visualization import report_stitches


class _EvaluatesStitches:
    """What both loops share: the evaluation of the listed stitches, one by one."""

    def _evaluate_stitches(
        self, stitches: str | int | Sequence[int]
    ) -> dict[int, dict[str, float]]:
        """Metrics of every listed stitch; the active stitch is the same afterwards."""
        model, logger = self.runner.model, self.runner.logger
        backbone = find_stitched_backbone(model)
        active = backbone.active_stitch
        ids = select_stitches(backbone.space, stitches)
        metrics, start = {}, time.time()
        try:
            for n, stitch_id in enumerate(ids, start=1):
                set_stitch(model, stitch_id)
                if len(ids) == 1:
                    metrics[stitch_id] = self._evaluate()
                    break
                # A table of classes per stitch would bury everything else.
                with only_warnings(logger):
                    metrics[stitch_id] = self._evaluate()
                left = (time.time() - start) / n * (len(ids) - n)
                logger.info(
                    f'stitch {stitch_id} ({backbone.active_stitch.kind}) '
                    f'{n}/{len(ids)}  {_format(metrics[stitch_id])}  eta: {left:.0f} s'
                )
        finally:
            set_stitch(model, active.id)
        return metrics

    def _evaluate(self) -> dict[str, float]:
        for idx, data_batch in enumerate(self.dataloader):
            self.run_iter(idx, data_batch)
        return self.evaluator.evaluate(len(self.dataloader.dataset))


@LOOPS.register_module()
class StitchValLoop(_EvaluatesStitches, ValLoop):
    """Validates the listed stitches.

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

    def run(self) -> dict[str, float]:
        """Launch validation."""
        self.runner.call_hook('before_val')
        self.runner.call_hook('before_val_epoch')
        self.runner.model.eval()
        metrics = _flatten(self._evaluate_stitches(self.stitches))
        self.runner.call_hook('after_val_epoch', metrics=metrics)
        self.runner.call_hook('after_val')
        return metrics


@LOOPS.register_module()
class StitchTestLoop(_EvaluatesStitches, TestLoop):
    """Tests the listed stitches and reports them with their costs.

    Prints a table and writes ``stitches.json`` and ``pareto.png``.

    Args:
        *args: See mmengine's ``TestLoop``.
        stitches: See :func:`snnet_mm.stitching.select_stitches`.
        input_size: Height and width that costs are counted at; by default the fixed
            size of the model's data preprocessor.
        out_dir: Folder of the report; by default that of the log.
        **kwargs: See mmengine's ``TestLoop``.
    """

    def __init__(
        self,
        *args,
        stitches: str | int | Sequence[int] = 'anchors',
        input_size: Sequence[int] | None = None,
        out_dir: str | os.PathLike | None = None,
        **kwargs,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.stitches, self.input_size = stitches, input_size
        self.out_dir = self.runner.log_dir if out_dir is None else out_dir

    def run(self) -> dict[str, float]:
        """Launch test."""
        self.runner.call_hook('before_test')
        self.runner.call_hook('before_test_epoch')
        self.runner.model.eval()
        # Counted first: a wrong input size must not cost an evaluation.
        costs = cost_table(self.runner.model, self.input_size)
        by_stitch = self._evaluate_stitches(self.stitches)
        space = find_stitched_backbone(self.runner.model).space
        if is_main_process():
            results = StitchResults.collect(space, costs, by_stitch)
            report_stitches(results, self.out_dir)
        metrics = _flatten(by_stitch)
        with only_warnings(self.runner.logger):
            self.runner.call_hook('after_test_epoch', metrics=metrics)
        self.runner.call_hook('after_test')
        return metrics


def _flatten(by_stitch: dict[int, dict[str, float]]) -> dict[str, float]:
    return {
        f'stitch_{stitch_id}/{name}': value
        for stitch_id, metrics in by_stitch.items()
        for name, value in metrics.items()
    }


def _format(metrics: dict[str, float]) -> str:
    return '  '.join(f'{name}: {value:.4g}' for name, value in metrics.items())
