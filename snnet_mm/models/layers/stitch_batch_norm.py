"""Batch norms with statistics of each stitch."""

from collections.abc import Callable, Mapping
from copy import copy
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.stitching import Stitch

from ..stitch_switch import find_stitched_backbone, unwrapped

# Keys in a state dict: int64 (n,), and float (n, C), for n stitches.
ROWS = 'stitch_ids', 'stitch_mean', 'stitch_var'
# Mean and variance (2, C) by stitch id and name of the norm.
Statistics = dict[int, dict[str, Tensor]]


class StitchBatchNorm(_BatchNorm):
    """A batch norm with statistics of each stitch, as slimmable networks have.

    Training averages ``running_mean`` and ``running_var`` over all stitches;
    :func:`snnet_mm.evaluation.recalibrate_bn` estimates those of each stitch, which
    evaluation uses. They are in the state dict, but not buffers, because averages
    of models and DDP would read those. :func:`convert_batch_norms` changes the class of
    norms.

    Attributes:
        statistics: Mean and variance ``(2, C)`` by stitch id.
        stitch_id: Id of the active stitch.
    """

    statistics: dict[int, Tensor]
    stitch_id: int

    def on_stitch(self, stitch: Stitch) -> None:
        """Use the statistics of a stitch."""
        self.stitch_id = stitch.id

    @property
    def running_mean(self) -> Tensor:
        """Mean ``(C,)`` of the active stitch, or of all in training mode."""
        return self._statistic('running_mean', 0)

    @property
    def running_var(self) -> Tensor:
        """Variance ``(C,)`` of the active stitch, or of all in training mode."""
        return self._statistic('running_var', 1)

    @property
    def shares_prefixes(self) -> bool:
        """Whether stitches with the same first steps have equal states."""
        return not self.statistics

    def merged(self) -> _BatchNorm:
        """Return a plain norm with the statistics of the active stitch."""
        plain = copy(self)
        own = dict(running_mean=self.running_mean, running_var=self.running_var)
        plain.__dict__['_buffers'] = self._buffers | own
        plain.__class__ = type(self).__mro__[2]
        return plain

    def _statistic(self, name: str, place: int) -> Tensor:
        if self.training or self.stitch_id not in self.statistics:
            return self._buffers[name]
        return self.statistics[self.stitch_id][place]

    def _apply(self, fn: Callable[[Tensor], Tensor], *args) -> 'StitchBatchNorm':
        self.statistics = {i: fn(both) for i, both in self.statistics.items()}
        return super()._apply(fn, *args)

    def _save_to_state_dict(self, state: dict, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(state, prefix, keep_vars)
        if self.statistics:
            ids = sorted(self.statistics)
            rows = torch.stack([self.statistics[i] for i in ids], dim=1)
            values = torch.tensor(ids), *rows
            state.update({prefix + k: v for k, v in zip(ROWS, values, strict=True)})

    def _load_from_state_dict(self, state: Mapping, prefix: str, *args) -> None:
        ids, *both = (state.pop(prefix + key, ()) for key in ROWS)
        super()._load_from_state_dict(state, prefix, *args)
        mean = self._buffers['running_mean']
        rows = torch.stack(both, dim=1).to(mean) if len(ids) else ()
        self.statistics = {int(i): row for i, row in zip(ids, rows, strict=True)}


@cache
def _with_statistics(kind: type[_BatchNorm]) -> type[StitchBatchNorm]:
    return type(f'Stitch{kind.__name__}', (StitchBatchNorm, kind), {})


def convert_batch_norms(model: nn.Module) -> dict[str, StitchBatchNorm]:
    """Convert the norms of :func:`batch_norms` in place, and return them by name."""
    norms = batch_norms(model)
    for norm in norms.values():
        if not isinstance(norm, StitchBatchNorm):
            norm.__class__ = _with_statistics(type(norm))
            norm.statistics = {}
        norm.stitch_id = find_stitched_backbone(model).active_stitch.id
    return norms


def set_statistics(model: nn.Module, statistics: Statistics) -> None:
    """Set the statistics of all stitches; those that are not given have none."""
    for name, norm in convert_batch_norms(model).items():
        norm.statistics = {i: s[name] for i, s in statistics.items() if name in s}


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the batch norms that prediction runs and training updates, by name.

    Frozen norms, such as in mmdet's ResNets (``norm_eval``), are skipped.
    """
    model = unwrapped(model)
    modes = {module: module.training for module in model.modules()}
    model.train()
    norms = {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, _BatchNorm)
        and not name.startswith('auxiliary_head.')
        and module.training
        and module.track_running_stats
    }
    for module, mode in modes.items():
        module.training = mode
    return norms
