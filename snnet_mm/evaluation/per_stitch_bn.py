"""Batch norm statistics per stitch; training mixes the statistics of all stitches."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy

import torch
from mmengine.dist import all_reduce
from mmengine.model import BaseModel
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.models import (
    Statistics,
    batch_norms,
    find_stitched_backbone,
    set_stitch,
    unwrapped,
)
from snnet_mm.stitching import visiting_order
from snnet_mm.utils import check


@torch.no_grad()
def recalibrate_bn(
    model: BaseModel, batches: Iterable[dict], ids: Iterable[int], mode: str = 'tensor'
) -> Statistics:
    """Estimate mean and variance of every batch norm that each stitch runs.

    The model is restored afterwards. Statistics are averaged over the batches of all
    ranks, with the same number of batches on each. Norms that a stitch does not reach,
    such as those of another anchor, have none. ``mode`` is the mode of mm's forward
    that reaches all batch norms: ``'predict'`` if some of them run on detections.
    """
    model = unwrapped(model)
    backbone, norms = find_stitched_backbone(model), batch_norms(model)
    check(norms, 'model', type(model).__name__, 'a model with batch norms')
    share = nullcontext if batch_norms(backbone) else backbone.sharing_prefixes
    stitches = visiting_order(backbone.space[i] for i in ids)
    # Sums of mean, variance and 1 over batches: a detector's heads may skip batches.
    totals = {
        (stitch.id, name): norm.running_mean.new_zeros(2 * norm.num_features + 1)
        for stitch in stitches
        for name, norm in norms.items()
    }
    # mmseg pads images smaller than a crop only in training mode, which would also run
    # batch augmentations.
    pads = not getattr(model.data_preprocessor, 'batch_augments', None)
    num_batches = 0
    with _observing(model, norms):
        for data_batch in batches:
            num_batches += 1
            data = model.data_preprocessor(data_batch, pads)
            with share():
                for stitch in stitches:
                    set_stitch(model, stitch.id)
                    for norm in norms.values():
                        norm.reset_running_stats()
                    model._run_forward(data, mode=mode)
                    for name, norm in norms.items():
                        if norm.num_batches_tracked:
                            mean, var = norm.running_mean, norm.running_var
                            sums = torch.cat([mean, var, mean.new_ones(1)])
                            totals[stitch.id, name] += sums
    check(num_batches, 'train_dataloader', num_batches, '1 batch or more')
    statistics: Statistics = {stitch.id: {} for stitch in stitches}
    for (stitch_id, name), total in totals.items():
        all_reduce(total)
        if total[-1]:
            statistics[stitch_id][name] = (total[:-1] / total[-1]).view(2, -1)
    return statistics


@contextmanager
def _observing(model: nn.Module, norms: Mapping[str, _BatchNorm]) -> Iterator[None]:
    """Set only the norms to training mode; restore the model afterwards."""
    momentum = {norm: norm.momentum for norm in norms.values()}
    states = {norm: deepcopy(norm.state_dict()) for norm in momentum}
    active, training = find_stitched_backbone(model).active_stitch, model.training
    model.eval()
    for norm in momentum:
        norm.train().momentum = None
    try:
        yield
    finally:
        set_stitch(model, active.id)
        for norm, state in states.items():
            norm.momentum = momentum[norm]
            norm.load_state_dict(state)
        model.train(training)
