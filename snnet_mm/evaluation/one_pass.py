"""Several stitches over the data once."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from functools import partial

import torch
from mmengine.evaluator import Evaluator
from mmengine.runner import Runner, autocast
from torch import nn
from torch.utils.data import DataLoader

from snnet_mm.datasets.batches import Predictions, prepare
from snnet_mm.models import find_stitched_backbone, set_stitch, unwrapped
from snnet_mm.stitching import Stitch, visiting_order
from snnet_mm.tasks import task_of
from snnet_mm.utils import check, isolated_rng

from .image_scores import image_names
from .partial_results import MetricBuffers, numbers_of

SECONDS_BETWEEN_LOGS = 10

# Called with a stitch id, the batch as loaded, and the predictions.
OnPrediction = Callable[[int, dict, Predictions], None]


@torch.no_grad()
def run_one_pass(
    runner: Runner,
    mode: str,
    dataloader: DataLoader,
    buffers: MetricBuffers,
    fp16: bool = False,
    on_prediction: OnPrediction | None = None,
) -> None:
    """Run all stitches of some buffers over the data once.

    Each batch is loaded and preprocessed once. Stitches are visited in the order of
    the tree of their routes' prefixes, and a block never runs twice on the same
    activations: the 134 stitches of a 12/24 space run 894 blocks per image instead of
    2412. The predictions of a stitch go to the metrics before the next one runs.
    The active stitch is the same afterwards.

    Args:
        runner: The runner.
        mode: ``'val'`` or ``'test'``, whose iteration hooks are called per batch.
        dataloader: The data.
        buffers: The stitches, and what the metrics collect for them.
        fp16: Whether to run with autocast.
        on_prediction: Called for every stitch and batch.
    """
    model, backbone = runner.model, find_stitched_backbone(runner.model)
    stitches = visiting_order(backbone.space[i] for i in buffers.ids)
    start = logged = time.time()
    with _switching(model, stitches, fp16) as switch:
        for idx, data_batch in enumerate(dataloader):
            event = dict(batch_idx=idx, data_batch=data_batch)
            runner.call_hook(f'before_{mode}_iter', **event)
            with backbone.sharing_prefixes(), autocast(enabled=fp16):
                predict = prepare(model, data_batch)
                for stitch in stitches:
                    switch(stitch.id)
                    outputs = predict()
                    with buffers.of(stitch.id):
                        buffers.evaluator.process(outputs, data_batch)
                    if on_prediction is not None:
                        on_prediction(stitch.id, data_batch, outputs)
            buffers.names += image_names(outputs)
            runner.call_hook(f'after_{mode}_iter', **event, outputs=outputs)
            left = len(dataloader) - idx - 1
            if not idx or time.time() - logged > SECONDS_BETWEEN_LOGS or not left:
                logged = time.time()
                each = (logged - start) / (idx + 1)
                runner.logger.info(
                    f'{len(stitches)} stitches in one pass: batch {idx + 1} of '
                    f'{len(dataloader)}, {each:.2f} s each, eta {each * left:.0f} s'
                )


@contextmanager
def _switching(
    model: nn.Module, stitches: Sequence[Stitch], fp16: bool
) -> Iterator[Callable[[int], None]]:
    """Give what switches a model, with what it computes from a data set, if it does."""
    active = find_stitched_backbone(model).active_stitch
    data = task_of(model).data_of_stitch(unwrapped(model))
    put_back: dict[int, Callable[[], None]] = {}

    def switch(stitch_id: int) -> None:
        set_stitch(model, stitch_id)
        if stitch_id in put_back:
            put_back[stitch_id]()

    try:
        with data or nullcontext() as prepare_data:
            for stitch in stitches if data else ():
                set_stitch(model, stitch.id)
                with autocast(enabled=fp16):
                    put_back[stitch.id] = prepare_data()
            yield switch
    finally:
        set_stitch(model, active.id)


@torch.no_grad()
def check_metric(
    runner: Runner, dataloader: DataLoader, evaluator: Evaluator, metric: str
) -> None:
    """Raise if an evaluator does not give a metric, before any pass over the data.

    The active stitch predicts the first image. Where its metrics cannot be computed,
    nothing is raised.
    """
    evaluator, model = deepcopy(evaluator), runner.model
    with isolated_rng(runner.seed):
        data_batch = dataloader.collate_fn([dataloader.dataset[0]])
    active = find_stitched_backbone(model).active_stitch
    with _switching(model, [active], False) as switch:
        switch(active.id)
        evaluator.process(prepare(model, data_batch)(), data_batch)
    unknown = '?'

    def compute(own: Callable[[list], dict], results: list) -> dict[str, object]:
        try:
            return own(results) or {unknown: 0}
        except ValueError:  # as for one class alone
            return {unknown: 0}

    for part in evaluator.metrics:
        part.compute_metrics = partial(compute, part.compute_metrics)
    names = [*numbers_of(evaluator.metrics, evaluator.evaluate(1))]
    known = not any(name.endswith(unknown) for name in names)
    check(metric in names or not known, '--metric', metric, names)
