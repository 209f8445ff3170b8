"""Batch norm statistics of each stitch, where training mixed those of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext

import torch
from mmengine.dist import all_reduce
from mmengine.model import BaseModel, is_model_wrapper
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.stitching import Stitch, visiting_order

from .stitch_switch import find_stitched_backbone, set_stitch

KEYS = ('running_mean', 'running_var')
# Both, of every batch norm by its name, for each stitch id.
Statistics = dict[int, dict[str, Tensor]]


class PerStitchBN(nn.Module):
    """Gives the batch norms of a model the statistics of the active stitch.

    As ``model.per_stitch_bn`` it is told by :func:`set_stitch`. It adds neither
    parameters nor entries to the state dict. Stitches without statistics of their own
    have those that the model came with. Where anchors have batch norms, neighbouring
    stitches share no states while it is attached: these may differ.

    Args:
        model: The model; all its batch norms take part, those of heads, necks and
            anchors.
        statistics: See :func:`recalibrate_bn`.

    Raises:
        ValueError: If the statistics are not those of this model's batch norms, or of
            no stitch of its space.
    """

    def __init__(self, model: nn.Module, statistics: Statistics) -> None:
        super().__init__()
        norms, of_some = batch_norms(model), _names_of_some(model)
        wanted = {f'{name}.{key}' for name in norms for key in KEYS}
        optional = {f'{name}.{key}' for name in of_some for key in KEYS}
        space = find_stitched_backbone(model).space
        for stitch_id, values in statistics.items():
            space[stitch_id]  # refuses an unknown id
            if not wanted - optional <= set(values) <= wanted:
                raise ValueError(
                    f'batch norm statistics of stitch {stitch_id} are '
                    f'{sorted(values)}; allowed are {sorted(wanted)} (option: '
                    '--bn-statistics)'
                )
        # In a tuple, which hides them: they are registered where they belong.
        self._model = (model,)
        self._norms = (norms,)
        self._mixed = _read(norms)
        self._apart = _in_anchors(model)
        self.statistics = statistics

    def on_stitch(self, stitch: Stitch) -> None:
        """Copy the statistics of a stitch into the batch norms."""
        own = self.statistics.get(stitch.id, {})
        _write(self._norms[0], {**self._mixed, **own})

    def attach(self) -> PerStitchBN:
        """Become a part of the model, and serve its active stitch."""
        self._model[0].per_stitch_bn = self
        backbone = find_stitched_backbone(self._model[0])
        backbone.shares_prefixes = not self._apart
        self.on_stitch(backbone.active_stitch)
        return self

    def detach(self) -> None:
        """Leave the model with the statistics that it had."""
        del self._model[0].per_stitch_bn
        find_stitched_backbone(self._model[0]).shares_prefixes = True
        _write(self._norms[0], self._mixed)


@torch.no_grad()
def recalibrate_bn(
    model: BaseModel, batches: Iterable[dict], ids: Iterable[int]
) -> Statistics:
    """Estimate the statistics of every batch norm anew for each stitch.

    Mean and variance are averaged over the batches. All but the batch norms stays in
    eval mode; the weights, and the statistics of the model, stay as they are. In a
    distributed run every rank gives as many batches, and all ranks get equal values.

    Args:
        model: The model, with a stitched backbone.
        batches: Batches of a data loader, as training sees them.
        ids: Stitches.

    Returns:
        Running mean and variance by name, for each stitch id; those of anchors and of
        heads of the anchors where it runs them.

    Raises:
        ValueError: If the model has no batch norm, there are no batches, or none of
            them reaches a batch norm that every stitch runs.
    """
    if is_model_wrapper(model):
        model = model.module
    backbone = find_stitched_backbone(model)
    stitches = visiting_order(backbone.space[i] for i in ids)
    norms, of_some = batch_norms(model), _names_of_some(model)
    apart = _in_anchors(model)
    if not norms:
        raise ValueError(
            f'{type(model).__name__} has no batch norm to recalibrate (option: '
            '--recalibrate-bn)'
        )
    # Sums over the batches that reached a norm: a detector's heads may see none.
    statistics = {
        s.id: {k: torch.zeros_like(v) for k, v in _read(norms).items()}
        for s in stitches
    }
    reached = {s.id: dict.fromkeys(_read(norms), 0) for s in stitches}
    num_batches = 0
    with _as_before(model, norms):
        for data_batch in batches:
            data = model.data_preprocessor(data_batch, False)
            num_batches += 1
            with nullcontext() if apart else backbone.sharing_prefixes():
                for stitch in stitches:
                    set_stitch(model, stitch.id)
                    for name, value in _observe(model, norms, data).items():
                        statistics[stitch.id][name] += value
                        reached[stitch.id][name] += 1
    if not num_batches:
        raise ValueError(
            'there are no images to recalibrate batch norm with (config key: '
            'train_dataloader)'
        )
    _average(statistics, reached, of_some)
    return statistics


def _average(
    statistics: Statistics, reached: Mapping[int, Mapping[str, int]], of_some: set[str]
) -> None:
    """Divide sums over the batches of all ranks by the batches that reached a norm.

    Raises:
        ValueError: If there are none of a norm that every stitch runs.
    """
    for stitch_id, values in statistics.items():
        for name, value in list(values.items()):
            number = value.new_tensor(reached[stitch_id][name])
            all_reduce(value)
            all_reduce(number)
            if number:
                value /= number
            elif name.rpartition('.')[0] in of_some:
                del values[name]
            else:
                raise ValueError(
                    f'no image reached {name} with stitch {stitch_id}, as where '
                    'nothing was detected; give more images or better weights (option: '
                    '--recalibrate-bn)'
                )


@contextmanager
def _as_before(model: nn.Module, norms: Mapping[str, _BatchNorm]) -> Iterator[None]:
    """Eval mode; afterwards mode, statistics and active stitch are as before."""
    counts = {name: norm.num_batches_tracked.clone() for name, norm in norms.items()}
    mixed, training = _read(norms), model.training
    active = find_stitched_backbone(model).active_stitch
    model.eval()
    try:
        yield
    finally:
        _write(norms, mixed)
        for name, norm in norms.items():
            norm.num_batches_tracked.copy_(counts[name])
        set_stitch(model, active.id)
        model.train(training)


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """All batch norms with statistics, by name."""
    return {
        name: m
        for name, m in model.named_modules()
        if isinstance(m, _BatchNorm) and m.track_running_stats
    }


def _names_of_some(model: nn.Module) -> set[str]:
    """Names of the batch norms that not every stitch runs.

    They are in the anchors, and in the heads of the anchors.
    """
    backbone = set(find_stitched_backbone(model).modules())
    return {
        name
        for name, norm in batch_norms(model).items()
        if norm in backbone or '.anchor_heads.' in f'.{name}'
    }


def _in_anchors(model: nn.Module) -> bool:
    """Whether there are batch norms in the anchors."""
    return bool(batch_norms(find_stitched_backbone(model)))


def _observe(
    model: BaseModel, norms: Mapping[str, _BatchNorm], data: dict
) -> dict[str, Tensor]:
    """Mean and variance of one batch in front of every batch norm that it reaches.

    Where a batch norm runs more than once, as on the levels of a pyramid, they are the
    means over its runs.
    """
    momentum = {name: norm.momentum for name, norm in norms.items()}
    for norm in norms.values():
        norm.train()
        norm.momentum = None
        norm.reset_running_stats()
    try:
        # mmdet's mask heads see detections in this mode only.
        model._run_forward(
            data, mode='predict' if hasattr(model, 'roi_head') else 'tensor'
        )
        return _read({n: m for n, m in norms.items() if m.num_batches_tracked})
    finally:
        for name, norm in norms.items():
            norm.eval()
            norm.momentum = momentum[name]


def _read(norms: Mapping[str, _BatchNorm]) -> dict[str, Tensor]:
    return {
        f'{name}.{key}': getattr(norm, key).clone()
        for name, norm in norms.items()
        for key in KEYS
    }


def _write(norms: Mapping[str, _BatchNorm], values: Mapping[str, Tensor]) -> None:
    for name, norm in norms.items():
        for key in KEYS:
            getattr(norm, key).copy_(values[f'{name}.{key}'])
