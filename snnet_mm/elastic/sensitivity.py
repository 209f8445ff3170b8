"""How much the predictions change if one branch of a network is narrow or skipped."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

from snnet_mm.anchors import TokenState
from snnet_mm.costs.parts import returning
from snnet_mm.models import NarrowBranch, find_stitched_backbone
from snnet_mm.models.layers.least_squares import LayerFit, LeastSquares
from snnet_mm.models.layers.narrow_branch import UnitOrder
from snnet_mm.tasks import map_divergence, task_of
from snnet_mm.utils import check

from .orders import channels_of, rank_units

RIDGE = 1e-4
MEASURED = 4  # one of so many units runs in the measured width of a branch
WIDTHS = 16  # numbers of units of a branch among which plans choose
TOKENS = 10  # per unknown of a fit


@dataclass
class StepRecord:
    """Measurements of a step.

    Args:
        order: Nested order of its hidden units; empty if it cannot be narrow.
        errors: Squared error per token of the refitted step, by number of units; of a
            gap for 0 units.
        divergence: Measured divergence of the predictions, by number of units.
    """

    order: list[int]
    errors: dict[int, float]
    divergence: dict[int, float]

    @classmethod
    def read(cls, data: Mapping) -> 'StepRecord':
        """Read a record from JSON, where keys are text."""
        numbers = (data['errors'], data['divergence'])
        return cls(data['order'], *({int(n): v for n, v in d.items()} for d in numbers))

    def harm(self, units: int) -> float:
        """Estimate the divergence of the predictions with some units.

        Other widths than the measured ones are scaled by the error of the fit.
        """
        if units in self.divergence:
            return self.divergence[units]
        measured = sorted(n for n in self.divergence if n or not units)
        lowest = min(self.errors.values())
        ratios = [
            self.divergence[n] / max(self._error(n) - lowest, 1e-30) for n in measured
        ]
        ratio = float(np.interp(units, measured, ratios))
        return ratio * max(self._error(units) - lowest, 0.0)

    def _error(self, units: int) -> float:
        widths = sorted(n for n in self.errors if n or not units)
        return float(np.interp(units, widths, [self.errors[n] for n in widths]))


class PredictionDistance:
    """Computes predictions from the output of a backbone, and compares them.

    Class probabilities of images or pixels are compared by the Kullback-Leibler
    divergence; those of independent labels, one by one. Depth maps, the outputs of
    dense detection heads, and the maps that other detection heads read are compared by
    the squared error over the variance. If the ``scope`` of the cost table excludes the
    heads, the maps that they read are compared.
    """

    def __init__(self, model: nn.Module, scope: str | None) -> None:
        self.model, self.backbone = model, find_stitched_backbone(model)
        task = task_of(model)
        self._run = task.run_features if scope else task.outputs
        self._divergence = map_divergence if scope else task.divergence(model)

    def read(self, images: Tensor, output: object) -> list[Tensor]:
        """Return predictions for images ``(B, 3, H, W)``, from a backbone output."""
        with returning(self.backbone, output):
            found = tree_leaves(self._run(self.model, images))
        return [t for t in found if isinstance(t, Tensor) and t.is_floating_point()]

    def distance(self, found: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
        """Return the mean divergence of predictions from the network's, the target."""
        pairs = zip(found, target, strict=True)
        return sum(self._divergence(_as_large(a, b), b) for a, b in pairs) / len(target)


class Sensitivities:
    """Measures the branches of a network one at a time.

    The network runs once, step by step. Where it can be narrow, a step gets an order of
    its hidden units (:func:`rank_units`). Then the step alone runs with one width, its
    output projection refitted, or is skipped, and all that follows runs to the
    predictions of other images; their divergence from the network's is the step's
    sensitivity.

    Args:
        model: An mm model with an :class:`ElasticBackbone`, in eval mode.
        fitted: Preprocessed images ``(B, 3, H, W)`` that maps are fitted on.
        compared: Other images, whose predictions are compared.
        scope: What the cost table of the model includes; see :class:`StitchTable`.
    """

    def __init__(
        self,
        model: nn.Module,
        fitted: Sequence[Tensor],
        compared: Sequence[Tensor],
        scope: str | None = None,
    ) -> None:
        self.backbone = find_stitched_backbone(model)
        self.view = self.backbone.view
        self.fitted, self.compared = fitted, compared
        self.predictions = PredictionDistance(model, scope)
        ends, maps = self.view.ends, self.backbone.out == 'maps'
        self.read = [ends[i] for i in self.backbone.out_indices] if maps else []

    @torch.no_grad()
    def run(
        self, known: Sequence[StepRecord | None] = ()
    ) -> Iterator[StepRecord | None]:
        """Yield the records of all steps after the known ones; None for fixed steps."""
        fitted = [self.view.embed(images) for images in self.fitted]
        compared = [self.view.embed(images) for images in self.compared]
        self.kept: list[dict[int, TokenState]] = [{} for _ in compared]
        self.targets = [self._predict(n, state, 0) for n, state in enumerate(compared)]
        for i in range(self.view.depth):
            after = [self.view.run_block(state, i) for state in fitted]
            if i >= len(known):
                yield self._measure(i, fitted, after, compared)
            fitted = after
            compared = [self.view.run_block(state, i) for state in compared]
            for kept, state in zip(self.kept, compared, strict=True):
                kept |= {i: state} if i in self.read else {}

    def _measure(
        self,
        i: int,
        before: Sequence[TokenState],
        after: Sequence[TokenState],
        compared: Sequence[TokenState],
    ) -> StepRecord | None:
        branch = self.view[i]
        if branch is None:
            return None
        record = StepRecord([], {}, {})
        if i in self.view.skippable:
            layer, error = self._fit_gap(i, before, after)
            record.errors[0] = error
            states = [layer.map_state(state) for state in compared]
            record.divergence[0] = self._divergence(states, i)
        if branch.units > 1:
            self._narrow(record, i, before, after, compared)
        return record

    def _fit_gap(
        self, i: int, before: Sequence[TokenState], after: Sequence[TokenState]
    ) -> tuple[nn.Module, float]:
        dims = before[0].fitted.shape[-1], after[0].fitted.shape[-1]
        layer = self.backbone.gap_layer(*dims).to(before[0].tokens.device)
        fit = LayerFit(layer, RIDGE)
        for x, y in zip(before, after, strict=True):
            fit.update(x, y)
        fit.set_maps()
        total = number = 0.0
        for x, y in zip(before, after, strict=True):
            difference = layer.map_state(x).tokens - y.tokens
            total += difference.square().sum().item()
            number += difference[..., 0].numel()
        return layer, total / number

    def _narrow(
        self,
        record: StepRecord,
        i: int,
        before: Sequence[TokenState],
        after: Sequence[TokenState],
        compared: Sequence[TokenState],
    ) -> None:
        branch, dim = self.view[i], self.view.block_dims[i]
        device = before[0].tokens.device
        order = UnitOrder(branch.units).to(device)
        whole = NarrowBranch(branch, branch.units, dim, order, i)
        fit = LeastSquares(branch.units * branch.group, dim, True, RIDGE, device, False)
        for x, y in zip(before, after, strict=True):
            fit.update(*whole.pair(x, y))
        ranking = rank_units(fit.sums, branch.group)
        record.order = ranking.order
        record.errors |= ranking.errors
        order.index.copy_(torch.tensor(ranking.order))
        units = max(1, branch.units // MEASURED)
        layer = NarrowBranch(branch, units, dim, order, i).to(device)
        layer.set_map(*fit.x_to_y(channels_of(order.index[:units], branch.group)))
        states = [layer.map_state(state) for state in compared]
        record.divergence[units] = self._divergence(states, i)

    def _divergence(self, states: Sequence[TokenState], i: int) -> float:
        """Return the divergence of predictions from states after step i."""
        found = [
            self.predictions.distance(self._predict(n, state, i + 1), target).item()
            for n, (state, target) in enumerate(zip(states, self.targets, strict=True))
        ]
        value = float(np.mean(found))
        expected = 'weights whose predictions are finite and not all equal'
        check(np.isfinite(value), 'checkpoint', value, expected)
        return value

    def _predict(self, n: int, state: TokenState, begin: int) -> list[Tensor]:
        """Return the predictions for batch n from the state before a step."""
        states = dict(self.kept[n])
        if begin:
            states |= {begin - 1: state} if begin - 1 in self.read else {}
        for i in range(begin, self.view.depth):
            state = self.view.run_block(state, i)
            if i in self.read:
                states[i] = state
        output = state
        if self.backbone.out == 'maps':
            output = tuple(
                self.view.to_output(states[i], self.backbone.with_cls, j)
                for j, i in enumerate(self.read)
            )
        return self.predictions.read(self.compared[n], output)


def _as_large(found: Tensor, target: Tensor) -> Tensor:
    """Return a map ``(B, C, h, w)`` resized to the size of another one."""
    if found.shape == target.shape:
        return found
    return F.interpolate(found, target.shape[2:], mode='bilinear')


def widths_of(units: int) -> list[int]:
    """Return the numbers of units of a branch among which plans choose, but for 0."""
    return sorted({max(1, round(units * n / WIDTHS)) for n in range(1, WIDTHS + 1)})
