"""Several stitches over the data once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from mmengine.dist import is_main_process
from mmengine.model import BaseTTAModel, is_model_wrapper
from mmengine.runner import Runner, autocast
from mmengine.structures import BaseDataElement
from torch import nn
from torch.utils.data import DataLoader

from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.stitching import visiting_order

from .metric_results import MetricResults

SECONDS_BETWEEN_LOGS = 10

# Called with a stitch id, the batch as loaded, and the predictions.
OnPrediction = Callable[[int, dict, Sequence[BaseDataElement]], None]


class OnePass:
    """Runs stitches over the data once.

    Each batch is loaded and preprocessed once. Stitches are visited in the order of
    the tree of their routes' prefixes, and a block never runs twice on the same
    activations: the 134 stitches of a 12/24 space run 894 blocks per image instead of
    2412. The predictions of a stitch go to the metrics before the next one runs.

    Args:
        runner: The runner.
        mode: ``'val'`` or ``'test'``, whose iteration hooks are called per batch.
        fp16: Whether to run with autocast.
        on_prediction: Called with the predictions of every stitch for every batch.
    """

    def __init__(
        self,
        runner: Runner,
        mode: str,
        fp16: bool = False,
        on_prediction: OnPrediction | None = None,
    ) -> None:
        self.runner, self.mode, self.fp16 = runner, mode, fp16
        self.on_prediction = on_prediction
        self.backbone = find_stitched_backbone(runner.model)

    @torch.no_grad()
    def run(self, dataloader: DataLoader, results: MetricResults) -> None:
        """Collect the results of all stitches; batches that they hold are skipped."""
        stitches = visiting_order(self.backbone.space[i] for i in results.ids)
        progress = _Progress(self.runner, len(dataloader), len(stitches))
        for idx, data_batch in enumerate(dataloader):
            if idx < results.num_batches:
                continue
            event = dict(batch_idx=idx, data_batch=data_batch)
            self.runner.call_hook(f'before_{self.mode}_iter', **event)
            with self.backbone.sharing_prefixes(), autocast(enabled=self.fp16):
                predict = prepare(self.runner.model, data_batch)
                for stitch in stitches:
                    set_stitch(self.runner.model, stitch.id)
                    outputs = predict()
                    with results.of(stitch.id):
                        results.evaluator.process(
                            data_samples=outputs, data_batch=data_batch
                        )
                    if self.on_prediction is not None:
                        self.on_prediction(stitch.id, data_batch, outputs)
            results.end_batch()
            self.runner.call_hook(f'after_{self.mode}_iter', **event, outputs=outputs)
            progress.end_batch(idx)


def prepare(
    model: nn.Module, data_batch: dict
) -> Callable[[], Sequence[BaseDataElement]]:
    """Preprocess a batch once, for predictions by several stitches.

    Returns:
        A function that predicts with the active stitch. Every call writes into data
        samples of its own.
    """
    if is_model_wrapper(model):
        model = model.module
    if isinstance(model, BaseTTAModel):
        # It preprocesses inside, one augmented copy of the batch after the other.
        return lambda: model.test_step(data_batch)
    data = model.data_preprocessor(data_batch, False)
    samples = data['data_samples']

    def predict() -> Sequence[BaseDataElement]:
        # mm writes predictions into the samples it is given.
        own = dict(data, data_samples=[sample.new() for sample in samples])
        return model._run_forward(own, mode='predict')

    return predict


class _Progress:
    """Says how far a pass is and how long it will take, every few seconds."""

    def __init__(self, runner: Runner, num_batches: int, num_stitches: int) -> None:
        self.logger, self.num_batches = runner.logger, num_batches
        self.num_stitches, self.done = num_stitches, 0
        self.start = self.last = time.time()

    def end_batch(self, idx: int) -> None:
        self.done += 1
        now, left = time.time(), self.num_batches - idx - 1
        if is_main_process() and (now - self.last > SECONDS_BETWEEN_LOGS or not left):
            self.last = now
            per_batch = (now - self.start) / self.done
            self.logger.info(
                f'Stitches in one pass: {self.num_stitches}, batch {idx + 1}/'
                f'{self.num_batches}, {per_batch:.2f} s per batch, eta: '
                f'{per_batch * left:.0f} s'
            )
