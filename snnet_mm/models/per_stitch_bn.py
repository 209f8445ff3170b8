"""Batch norm statistics of each stitch, where training mixed those of all."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from logging import WARNING

import torch
from mmengine.dist import all_reduce
from mmengine.logging import print_log
from mmengine.model import BaseModel
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.stitching import Stitch, visiting_order
from snnet_mm.utils import check

from .stitch_switch import find_stitched_backbone, set_stitch, unwrapped
from .wrappers.model_wrapper import ModelWrapper

KEYS = ('running_mean', 'running_var')
STATISTICS = 'stitch_statistics'  # the key of a checkpoint that holds them
Statistics = dict[int, dict[str, Tensor]]  # by stitch id, and name in the state dict
Norms = Mapping[str, _BatchNorm]


class PerStitchBN(nn.Module):
    """Gives the batch norms of a model the statistics of the active stitch.

    As ``model.per_stitch_bn`` it is told by :func:`set_stitch`. It adds nothing to the
    state dict. Stitches without statistics of their own, see :func:`recalibrate_bn`,
    have those that the model came with. Where anchors have batch norms, neighbouring
    stitches share no states while it is attached.
    """

    def __init__(self, model: nn.Module, statistics: Statistics) -> None:
        super().__init__()
        model = _plain(model)
        norms, space = batch_norms(model), find_stitched_backbone(model).space
        # In tuples, which hide them: they are registered where they belong.
        self._model, self._norms = (model,), (norms,)
        self._mixed, self.statistics = _read(norms), statistics
        for i, values in statistics.items():
            optional = _norms_of_some_stitches(model, norms, space[i])
            needed = {k for k in self._mixed if k.rpartition('.')[0] not in optional}
            wrong = (needed - values.keys()) | (values.keys() - self._mixed.keys())
            wanted = (
                f'all {len(norms)} batch norms of the model, for stitch {i}; a file of '
                'an older model is written anew by tools/test.py --recalibrate-bn'
            )
            check(not wrong, '--bn-statistics', sorted(wrong)[:3], wanted)

    def on_stitch(self, stitch: Stitch) -> None:
        """Copy the statistics of a stitch into the batch norms."""
        own = self.statistics.get(stitch.id, {})
        _write(self._norms[0], {**self._mixed, **own})

    def attach(self) -> 'PerStitchBN':
        """Become a part of the model, and serve its active stitch."""
        (model,) = self._model
        model.per_stitch_bn = self
        backbone = find_stitched_backbone(model)
        backbone.shares_prefixes = not batch_norms(backbone)
        set_stitch(model, backbone.active_stitch.id)
        return self

    def detach(self) -> None:
        """Leave the model with the statistics that it had."""
        (model,) = self._model
        del model.per_stitch_bn
        find_stitched_backbone(model).shares_prefixes = True
        _write(self._norms[0], self._mixed)


def attach_statistics(
    model: nn.Module, statistics: Statistics | None
) -> PerStitchBN | None:
    """Attach the statistics of a checkpoint, as far as the model has the same parts.

    Where it has norms that the checkpoint lacks, a warning says that all stay mixed.
    """
    if not statistics or not (norms := batch_norms(model)):
        return None
    ids = {*find_stitched_backbone(model).space.ids} & statistics.keys()
    here = {f'{name}.{key}' for name in norms for key in KEYS}
    own = {i: {k: statistics[i][k] for k in here & statistics[i].keys()} for i in ids}
    try:
        return PerStitchBN(model, own).attach()
    except ValueError as error:
        words = f'Stitches keep mixed batch norm statistics: {error}'
        print_log(words, 'current', WARNING)
        return None


@torch.no_grad()
def recalibrate_bn(
    model: BaseModel, batches: Iterable[dict], ids: Iterable[int], mode: str = 'tensor'
) -> Statistics:
    """Estimate mean and variance of every batch norm that a stitch runs anew, for each.

    They are averaged over batches of a data loader, as training sees them, all else in
    eval mode; the model stays as it is. ``mode`` is that of mm's forward that reaches
    all batch norms: ``'predict'`` where some see detections. In a distributed run every
    rank gives as many batches, and all ranks get equal values.
    """
    model = _plain(model)
    backbone, norms = find_stitched_backbone(model), batch_norms(model)
    wanted = 'a model with batch norms'
    check(norms, '--recalibrate-bn', type(model).__name__, wanted)
    share = nullcontext if batch_norms(backbone) else backbone.sharing_prefixes
    stitches = visiting_order(backbone.space[i] for i in ids)
    # Sums of mean, variance and 1 over batches: a detector's heads may not see all.
    sizes = {n: 2 * norm.num_features + 1 for n, norm in norms.items()}
    zeros = next(iter(norms.values())).running_mean.new_zeros
    totals = {s.id: {n: zeros(size) for n, size in sizes.items()} for s in stitches}
    # mmseg pads images that are smaller than a crop in training alone.
    pads = not getattr(model.data_preprocessor, 'batch_augments', None)
    num_batches = 0
    with _observing(model, norms):
        for data_batch in batches:
            num_batches += 1
            data = model.data_preprocessor(data_batch, pads)
            with share():
                for stitch in stitches:
                    set_stitch(model, stitch.id)
                    for name, value in _observe(model, norms, data, mode).items():
                        totals[stitch.id][name] += value
    check(num_batches, 'train_dataloader', num_batches, 'images to recalibrate with')
    idle = {s.id: _norms_of_some_stitches(model, norms, s) for s in stitches}
    return {s.id: _average(totals[s.id], s, idle[s.id]) for s in stitches}


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the batch norms that prediction runs and training changes, by name.

    Frozen ones, as of mmdet's ResNets (``norm_eval``), keep what they came with.
    """
    model = _plain(model)
    named = model.named_modules()
    norms = {n: m for n, m in named if not n.startswith('auxiliary_head.')}
    norms = {n: m for n, m in norms.items() if isinstance(m, _BatchNorm)}
    modes = {module: module.training for module in model.modules()}
    model.train()
    trained = {n: norm for n, norm in norms.items() if norm.training}
    for module, mode in modes.items():
        module.training = mode
    return {n: norm for n, norm in trained.items() if norm.track_running_stats}


def _plain(model: nn.Module) -> nn.Module:
    """Return the mm model inside all wrappers: those of ours may hold a teacher."""
    model = unwrapped(model)
    while isinstance(model, ModelWrapper):
        model = model.wrapped
    return model


def _average(
    totals: Mapping[str, Tensor], stitch: Stitch, optional: set[str]
) -> dict[str, Tensor]:
    """Divide sums over the batches of all ranks by the batches that reached a norm."""
    statistics = {}
    for name, total in totals.items():
        all_reduce(total)
        reached, wanted = bool(total[-1]), 'more images or better weights: none reached'
        wanted += f' {name} with stitch {stitch.id}, as where nothing was detected'
        check(reached or name in optional, '--recalibrate-bn', 0, wanted)
        if reached:
            values = (total[:-1] / total[-1]).chunk(2)
            for key, value in zip(KEYS, values, strict=True):
                statistics[f'{name}.{key}'] = value.clone()
    return statistics


def _norms_of_some_stitches(model: nn.Module, norms: Norms, stitch: Stitch) -> set[str]:
    """Return the norms that a stitch may leave out: in the backbone, and idle ones."""
    inside = set(find_stitched_backbone(model).modules())
    asked = [m for m in model.modules() if hasattr(type(m), 'idle_parameters')]
    idle = {id(p) for module in asked for p in module.idle_parameters(stitch)}
    return {n for n, norm in norms.items() if norm in inside or id(norm.weight) in idle}


@contextmanager
def _observing(model: nn.Module, norms: Norms) -> Iterator[None]:
    """Only norms are in training mode; afterwards all is as before."""
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


def _observe(
    model: BaseModel, norms: Norms, data: dict, mode: str
) -> dict[str, Tensor]:
    """Return mean, variance and 1 of a batch for every batch norm that it reaches.

    Where one runs more than once, as on the levels of a pyramid, they are means.
    """
    for norm in norms.values():
        norm.reset_running_stats()
    model._run_forward(data, mode=mode)
    return {
        name: torch.cat([n.running_mean, n.running_var, n.running_var.new_ones(1)])
        for name, n in norms.items()
        if n.num_batches_tracked
    }


def _read(norms: Norms) -> dict[str, Tensor]:
    pairs = [(name, norm, key) for name, norm in norms.items() for key in KEYS]
    return {f'{name}.{key}': getattr(norm, key).clone() for name, norm, key in pairs}


def _write(norms: Norms, values: Mapping[str, Tensor]) -> None:
    for name, norm in norms.items():
        for key in KEYS:
            getattr(norm, key).copy_(values[f'{name}.{key}'])
