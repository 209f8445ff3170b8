"""Batch norms with statistics of each stitch."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from snnet_mm.stitching import Stitch
from snnet_mm.utils.checkpoints import ADAPTED

from ..stitch_switch import find_stitched_backbone, unwrapped

# Buffers with a row for each stitch id: (n, C), (n, C) and (n,).
ROWS = 'stitch_mean', 'stitch_var', 'known'
# Loaded into models whose spaces have more or fewer stitches.
ADAPTED.update(f'.{name}' for name in ROWS)
# Mean and variance (2, C) by stitch id and name of the norm.
Statistics = dict[int, dict[str, Tensor]]


class StitchBatchNorm(_BatchNorm):
    """A batch norm with statistics of each stitch, as slimmable networks have.

    Training averages ``running_mean`` and ``running_var`` over all stitches;
    :func:`snnet_mm.evaluation.recalibrate_bn` estimates those of each stitch, which
    evaluation uses where they are known. :func:`convert_batch_norms` replaces norms.

    Args:
        norm: The norm that is replaced; its parameters and buffers are kept.
        num_rows: Largest stitch id plus 1, the ``n`` of the buffers.

    Attributes:
        stitch_mean, stitch_var: Mean and variance ``(n, C)`` by stitch id.
        known: Flags ``(n,)`` of the stitches that have statistics.
        row: Id of the active stitch.
    """

    def __init__(self, norm: _BatchNorm, num_rows: int) -> None:
        super().__init__(norm.num_features, norm.eps, norm.momentum, norm.affine)
        # The same objects, as optimizers and averages of models refer to them.
        self._parameters, self._buffers = norm._parameters, norm._buffers
        self._modules = norm._modules  # timm's activations
        self.training, self.row = norm.training, 0
        rows = norm.running_mean.new_zeros(num_rows, norm.num_features)
        self.register_buffer('stitch_mean', rows)
        self.register_buffer('stitch_var', rows.clone())
        self.register_buffer('known', rows.new_zeros(num_rows, dtype=torch.bool))

    def on_stitch(self, stitch: Stitch) -> None:
        """Use the statistics of a stitch."""
        self.row = stitch.id

    def moments(self) -> tuple[Tensor, Tensor]:
        """Return mean and variance ``(C,)`` of the active stitch, or else of all."""
        known = self.known[self.row]  # no branch, which would wait for a GPU
        mean = torch.where(known, self.stitch_mean[self.row], self.running_mean)
        return mean, torch.where(known, self.stitch_var[self.row], self.running_var)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = super().forward(x)
        else:
            x = F.batch_norm(x, *self.moments(), self.weight, self.bias, eps=self.eps)
        for part in self.children():
            x = part(x)
        return x

    @torch.no_grad()
    def set_statistics(self, statistics: Mapping[int, Tensor]) -> None:
        """Set mean and variance ``(2, C)`` by stitch id; other stitches have none."""
        for name in ROWS:
            getattr(self, name).zero_()
        for i, (mean, var) in statistics.items():
            self.stitch_mean[i], self.stitch_var[i], self.known[i] = mean, var, True

    @property
    def shares_prefixes(self) -> bool:
        """Whether stitches with the same first steps have equal states."""
        return not self.known.any().item()

    def _check_input_dim(self, x: Tensor) -> None:
        """Accept inputs of any rank, as norms of all ranks are replaced."""

    def _load_from_state_dict(self, state: dict, prefix: str, *args) -> None:
        """Load the rows of this space's stitches; other weights leave none.

        Older checkpoints have the rows of known stitches alone, and their ids.
        """
        mean, known = state.get(prefix + 'stitch_mean'), state.get(prefix + 'known')
        ids = state.pop(prefix + 'stitch_ids', None)
        if mean is None or mean.shape[1:] != self.running_mean.shape:
            ids = rows = torch.zeros(0, dtype=torch.long)
        elif ids is None:
            ids = rows = known.nonzero().flatten()
        else:
            rows = torch.arange(len(ids))
        kept = ids < len(self.known)
        for name in ROWS:
            value = torch.zeros_like(getattr(self, name))
            if name == 'known':
                value[ids[kept]] = True
            elif kept.any():
                value[ids[kept]] = state[prefix + name][rows[kept]].to(value)
            state[prefix + name] = value
        super()._load_from_state_dict(state, prefix, *args)


class StitchSyncBatchNorm(StitchBatchNorm, nn.SyncBatchNorm):
    """A :class:`StitchBatchNorm` whose training synchronises all processes."""

    def __init__(self, norm: nn.SyncBatchNorm, num_rows: int) -> None:
        super().__init__(norm, num_rows)
        self.process_group = norm.process_group


def convert_batch_norms(model: nn.Module) -> dict[str, StitchBatchNorm]:
    """Replace the norms of :func:`batch_norms` in place, and return them by name."""
    backbone, norms = find_stitched_backbone(model), batch_norms(model)
    num_rows, new = max(backbone.space.ids) + 1, {}
    for name, norm in norms.items():
        if not isinstance(norm, StitchBatchNorm):
            synced = isinstance(norm, nn.SyncBatchNorm)
            kind = StitchSyncBatchNorm if synced else StitchBatchNorm
            norms[name] = new[norm] = kind(norm, num_rows)
        norms[name].on_stitch(backbone.active_stitch)
    for parent in [*model.modules()]:
        for name, child in [*parent._modules.items()]:  # under all of its names
            if child in new:
                setattr(parent, name, new[child])
    return norms


def set_statistics(model: nn.Module, statistics: Statistics) -> None:
    """Set the statistics of all stitches; those that are not given have none."""
    for name, norm in convert_batch_norms(model).items():
        norm.set_statistics({i: s[name] for i, s in statistics.items() if name in s})


def known_stitches(model: nn.Module) -> set[int]:
    """Return the ids of stitches that have batch norm statistics of their own."""
    norms = [m for m in model.modules() if isinstance(m, StitchBatchNorm)]
    return {i for norm in norms for i in norm.known.nonzero().flatten().tolist()}


def batch_norms(model: nn.Module) -> dict[str, _BatchNorm]:
    """Return the batch norms that prediction runs and training updates, by name.

    Frozen norms, such as in mmdet's ResNets (``norm_eval``), are skipped, and so are
    norms of other classes than torch's and timm's, which may compute anything.
    """
    model = unwrapped(model)
    modes = {module: module.training for module in model.modules()}
    model.train()
    norms = {
        name: module
        for name, module in model.named_modules()
        if _is_known(module)
        and not name.startswith('auxiliary_head.')
        and module.training
        and module.track_running_stats
    }
    for module, mode in modes.items():
        module.training = mode
    return norms


def _is_known(module: nn.Module) -> bool:
    """Return whether a :class:`StitchBatchNorm` computes as a module does."""
    forwards = _BatchNorm.forward, nn.SyncBatchNorm.forward, StitchBatchNorm.forward
    of_timm = {name for name, _ in module.named_children()} == {'drop', 'act'}
    known = of_timm or type(module).forward in forwards
    return isinstance(module, _BatchNorm) and known
