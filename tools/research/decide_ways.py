"""Ways to choose and fit chains, for ``decide.py``."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from mmengine.config import Config
from mmengine.registry import METRICS
from mmengine.runner import Runner
from torch import Tensor, nn
from torch.nn import functional as F

from snnet_mm.anchors import TokenState
from snnet_mm.costs.parts import returning
from snnet_mm.elastic import elastic_model
from snnet_mm.elastic.choosing import _options
from snnet_mm.elastic.convert import give_chains
from snnet_mm.elastic.image_batches import ImageBatches
from snnet_mm.elastic.knapsack import Option, choose_plan
from snnet_mm.elastic.sensitivity import (
    MEASURED,
    RIDGE,
    Sensitivities,
    StepRecord,
    widths_of,
)
from snnet_mm.elastic.step_costs import StepCosts, probe_chains
from snnet_mm.elastic.token_weights import RareClassWeights
from snnet_mm.evaluation.image_scores import ImageScores, image_names
from snnet_mm.models import LeastSquares, NarrowBranch
from snnet_mm.models.layers.narrow_branch import UnitOrder
from snnet_mm.stitching import Plan, parse_budget
from snnet_mm.tasks import task_of
from snnet_mm.utils import digest

CHOOSING, COMPARED = 75, 24  # images, as of make_elastic for DINOv2-S at 168x238
EPS = 1e-6  # of LayerNorm
TURNS = 6  # knapsacks for a plan of least quadratic form


@dataclass
class Measured:
    """Measurements of all branches.

    Args:
        records: Records of ``make_elastic``, by step.
        with_map: The same of branches that have an affine map beside their units.
        changes: Changes of logits, by step and units, whose squared norm is twice the
            divergence of small ones.
    """

    records: list[StepRecord | None] = field(default_factory=list)
    with_map: dict[int, StepRecord] = field(default_factory=dict)
    changes: dict[tuple[int, int], Tensor] = field(default_factory=dict)


class _Search(Sensitivities):
    def measure(self) -> Measured:
        self.found = Measured()
        for record in self.run():
            self.found.records.append(record)
            print(f'Measured step {len(self.found.records)} of {self.view.depth}')
        return self.found

    def _fit_gap(self, i, before, after):
        self.units = 0
        return super()._fit_gap(i, before, after)

    def _narrow(self, record, i, before, after, compared) -> None:
        branch, dim = self.view[i], self.view.block_dims[i]
        self.units = units = max(1, branch.units // MEASURED)
        super()._narrow(record, i, before, after, compared)
        if 0 not in record.divergence:
            return
        order = UnitOrder(branch.units)
        order.index.copy_(torch.tensor(record.order))
        whole = NarrowBranch(branch, branch.units, dim, order, i)
        fit = LeastSquares(dim + whole.in_features, dim, True, RIDGE, exact=False)
        for x, y in zip(before, after, strict=True):
            hidden, change = whole.pair(x, y)
            fit.update(torch.cat([x.tokens, hidden], 2), change)
        layer = MapBranch(NarrowBranch(branch, units, dim, order, i))
        layer.set_map(*fit.x_to_y(torch.arange(layer.in_dim)))
        self.units = -units
        divergence = self._divergence([layer.map_state(s) for s in compared], i)
        errors = errors_with_map(fit, dim, branch.group)
        measured = {0: record.divergence[0], units: divergence}
        self.found.with_map[i] = StepRecord([], errors, measured)

    def _divergence(self, states: Sequence[TokenState], i: int) -> float:
        changes, values = [], []
        for n, (state, targets) in enumerate(zip(states, self.targets, strict=True)):
            found = self._predict(n, state, i + 1)
            values.append(self.predictions.distance(found, targets).item())
            for logits, target in zip(found, targets, strict=True):
                p, change = target.softmax(1), logits - target
                change = p.sqrt() * (change - (p * change).sum(1, keepdim=True))
                changes.append(change.flatten())
        self.found.changes[i, self.units] = torch.cat(changes).half()
        return float(np.mean(values))


class MapBranch:
    """A branch with some of its units and an affine map, ``x + W h_K(x) + x M + b``."""

    def __init__(self, branch: NarrowBranch) -> None:
        self.branch, self.in_dim = branch, branch.out_features + branch.in_features

    def inputs(self, state: TokenState) -> Tensor:
        return torch.cat([state.tokens, self.branch.hidden(state)], 2)

    def set_map(self, weight: Tensor, bias: Tensor) -> None:
        self.map = weight.float(), bias.float()

    def map_state(self, state: TokenState) -> TokenState:
        change = F.linear(self.inputs(state), *self.map)
        return state._replace(tokens=state.tokens + change)


def errors_with_map(fit: LeastSquares, dim: int, group: int) -> dict[int, float]:
    """Return errors of fits to x and the first hidden units, by number of units."""
    gram, cross, outputs = fit.sums
    number, mean, of_y = gram[-1, -1], gram[-1, :-1], cross[-1, :-1]
    gram = gram[:-1, :-1] / number - mean.outer(mean) / number**2
    cross = cross[:-1, :-1] / number - mean.outer(of_y) / number**2
    gram.diagonal().mul_(1 + RIDGE).add_(1e-30)
    factor = torch.linalg.cholesky(gram)
    gains = torch.linalg.solve_triangular(factor, cross, upper=False).square().sum(1)
    variance = outputs.diagonal()[:-1].sum() / number - (of_y / number).square().sum()
    errors = variance - gains.cumsum(0)[dim - 1 :: group]
    return dict(enumerate(errors.clamp(min=0).tolist()))


def harm_with_map(record: StepRecord, units: int) -> float:
    """Estimate the divergence of a branch with units and a map."""
    above = {n: e - min(record.errors.values()) for n, e in record.errors.items()}
    ratios = [value / max(above[n], 1e-30) for n, value in record.divergence.items()]
    return float(np.interp(units, [*record.divergence], ratios)) * above[units]


class Form:
    """The quadratic form of the changes of predictions over all branches.

    An option has the direction in which its branch changed the predictions with the
    measured width, or skipped, and the length of its own harm.
    """

    def __init__(self, measured: Measured, options: Sequence[Sequence[Option]]) -> None:
        kinds = [key for key in measured.changes if key[1] >= 0]
        vectors = torch.stack([measured.changes[key] for key in kinds]).float()
        vectors = F.normalize(vectors, dim=1)
        self.gram = (vectors @ vectors.T).double().numpy()
        self.options, rows = options, {key: n for n, key in enumerate(kinds)}
        narrow = {i: n for (i, units), n in rows.items() if units}
        self.vectors = [np.zeros((len(of_step), len(kinds))) for of_step in options]
        for i, of_step in enumerate(options):
            for k, option in enumerate(of_step):
                if option.harm > 0:
                    row = narrow[i] if option.units else rows[i, 0]
                    self.vectors[i][k, row] = option.harm**0.5

    def __call__(self, chosen: Sequence[int]) -> float:
        """Return the form of a plan, given the index of the option of every step."""
        total = sum(v[k] for v, k in zip(self.vectors, chosen, strict=True))
        return float(total @ self.gram @ total)

    def best_plan(self, limit: float, ends: Collection[int]) -> Plan:
        """Return the best plan of several knapsacks.

        Harms of each are those of an option beside the mean of what the plans before
        have; the first plan is that of the options' own harms.
        """
        found: dict[Plan, float] = {}
        means = [v[0] * 0 for v in self.vectors]
        for turn in range(TURNS):
            total = sum(means)
            steps = [
                [
                    o._replace(harm=float(v @ self.gram @ (2 * (total - own) + v)))
                    for o, v in zip(options, vectors, strict=True)
                ]
                for options, vectors, own in zip(
                    self.options, self.vectors, means, strict=True
                )
            ]
            plan = choose_plan(steps, limit, ends)
            chosen = self.at(plan)
            found[plan] = self(chosen)
            share = 0.5 if turn else 1
            means = [
                (1 - share) * own + share * v[k]
                for own, v, k in zip(means, self.vectors, chosen, strict=True)
            ]
        return min(found, key=found.get)

    def at(self, plan: Plan) -> list[int]:
        """Return the index of the option of every step of a plan."""
        return [
            [option.units for option in options].index(units)
            for options, units in zip(self.options, plan, strict=True)
        ]


class Chains:
    """Chains of several ways of one network, fitted and tested together."""

    def __init__(self, cfg: Config, network: nn.Module) -> None:
        self.cfg, self.model = cfg, elastic_model(network)
        self.view = self.model.backbone.view
        self.images = ImageBatches(cfg, self.model)
        sample = next(iter(self.images.draw(1)))
        give_chains(self.model, probe_chains(self.view))
        self.costs = StepCosts(self.model, tuple(sample.shape[2:]))
        self.ends = self.costs.space.read

    def plans(
        self, way: set[str], measured: Measured, limits: Sequence[float]
    ) -> list[Plan]:
        """Return the plans of a way; negative numbers are units with a map."""
        records, step_cost = measured.records, partial(self.costs.step, 'flops')
        options = [
            _options(record, self.costs, 'flops', i) for i, record in enumerate(records)
        ]
        base = self.costs.of('flops', self.view.widths)
        base -= sum(max(of_step).cost for of_step in options)
        for i, record in measured.with_map.items() if 'maps' in way else ():
            options[i] += [
                Option(-n, step_cost(i, n) + step_cost(i, 0), harm_with_map(record, n))
                for n in widths_of(self.view.widths[i])[:-1]
            ]
        if 'gram' in way:
            form = Form(measured, options)
            return [form.best_plan(limit - base, self.ends) for limit in limits]
        return [choose_plan(options, limit - base, self.ends) for limit in limits]

    @torch.no_grad()
    def fit(
        self,
        ways: Sequence[str],
        measured: Measured,
        budgets: Sequence[str],
        number: int,
    ) -> None:
        """Fit all chains in turn, as ``fit_in_turn`` does."""
        orders = {}
        for i, record in enumerate(measured.records):
            if record is not None and record.order:
                orders[i] = UnitOrder(self.view.widths[i])
                orders[i].index.copy_(torch.tensor(record.order))
        whole = self.costs.of('flops', self.view.widths)
        limits = [parse_budget(text).of([whole]).limit for text in budgets]
        images = self.images.draw(number)
        states = [self.view.embed(batch) for batch in images]
        plans = {way: self.plans({*way.split('+')}, measured, limits) for way in ways}
        self.chains = {
            way: [
                Chain(self.model, orders, plan, self.ends, 'oas' in way, [*states])
                for plan in plans[way]
            ]
            for way in ways
        }
        rarity = any('rarity' in way for way in ways)
        rarity = RareClassWeights(self.model, images) if rarity else None
        for i in range(self.view.depth):
            states = [self.view.run_block(state, i) for state in states]
            for way, chains in self.chains.items():
                weights = [torch.ones(s.tokens.shape[:2]) for s in states]
                if 'rarity' in way:
                    weights = [rarity(n, s) for n, s in enumerate(states)]
                if 'norm' in way:
                    norm = [1 / (s.tokens.var(-1) + EPS) for s in states]
                    pairs = zip(weights, norm, strict=True)
                    weights = [w * v / v.mean() for w, v in pairs]
                for chain in chains:
                    chain.fit_step(i, states, weights)
            print(f'Fitted step {i + 1} of {self.view.depth}', flush=True)
        for chains in self.chains.values():
            for chain in chains:
                del chain.states

    @torch.no_grad()
    def test(self) -> dict[str, ImageScores]:
        """Test the network (id 0) and the chains of every way (ids from 1)."""
        backbone = self.model.backbone
        read = [self.view.ends[i] for i in backbone.out_indices]
        own = dict(num_workers=0, persistent_workers=False)
        loader = Runner.build_dataloader(dict(self.cfg.test_dataloader, **own))
        network = Chain(self.model, {}, self.view.widths, self.ends, False, [])
        tested = [network, *(c for chains in self.chains.values() for c in chains)]
        metrics = [METRICS.build(self.cfg.test_evaluator) for _ in tested]
        names = []
        for metric in metrics:
            metric.dataset_meta = loader.dataset.metainfo
        for batch in loader:
            data = self.model.data_preprocessor(batch, False)
            names += image_names(data['data_samples'])
            first = self.view.embed(data['inputs'])
            for chain, metric in zip(tested, metrics, strict=True):
                states = chain.run(first)
                output = tuple(
                    self.view.to_output(states[i], backbone.with_cls, j)
                    for j, i in enumerate(read)
                )
                with returning(backbone, output):
                    samples = self.model(**data, mode='predict')
                metric.process(batch, [sample.to_dict() for sample in samples])
        parts = []
        for metric in metrics:
            known = task_of(metric).image_statistics(metric, metric.results)
            (name, (above, below, scale)) = next(iter(known.items()))
            parts.append((np.asarray(above)[None], np.asarray(below)[None]))
        scores, begin = {}, 1
        for way, chains in self.chains.items():
            own = [parts[0], *parts[begin : begin + len(chains)]]
            of_way = [
                ImageScores(name, (i,), *part, scale, digest(names))
                for i, part in enumerate(own)
            ]
            scores[way] = ImageScores.stack(of_way)
            begin += len(chains)
        return scores


class Chain:
    """A chain that is fitted step by step beside others.

    Args:
        model: The elastic model.
        orders: Orders of hidden units, by step.
        plan: Units of every step; a negative number has a map beside them.
        ends: Steps after which a gap ends.
        oas: Whether ridges are those of :func:`solve_oas`.
        states: States of all images that it is fitted on, in batches.
    """

    def __init__(
        self,
        model: nn.Module,
        orders: dict[int, UnitOrder],
        plan: Plan,
        ends: Collection[int],
        oas: bool,
        states: list[TokenState],
    ) -> None:
        self.backbone, self.view = model.backbone, model.backbone.view
        self.orders, self.plan, self.oas, self.states = orders, plan, oas, states
        last = self.view.depth - 1
        self.ends = {*ends, last} | {i for i in range(last) if plan[i + 1]}
        self.layers: dict[int, nn.Module | MapBranch] = {}

    def fit_step(
        self, i: int, after: Sequence[TokenState], weights: Sequence[Tensor]
    ) -> None:
        """Fit and run step i, after which the network has the given states."""
        units, dim = self.plan[i], self.view.block_dims[i]
        pairs = [*zip(self.states, after, weights, strict=True)]
        if units and units != self.view.widths[i]:
            layer = NarrowBranch(self.view[i], abs(units), dim, self.orders[i], i)
            inputs = layer.hidden
            if units < 0:
                layer = MapBranch(layer)
                inputs = layer.inputs
            inputs = [inputs(state) for state in self.states]
            fit = LeastSquares(inputs[0].shape[2], dim, False, RIDGE, exact=False)
            for x, (before, state, w) in zip(inputs, pairs, strict=True):
                fit.update(x, state.tokens - before.tokens, w)
            weight, bias = (t.float() for t in self._solve(fit))
            layer.set_map(weight, bias)
            self.layers[i] = layer
            self.states = [  # as map_state, with the inputs that are known
                state._replace(tokens=state.tokens + F.linear(x, weight, bias))
                for x, state in zip(inputs, self.states, strict=True)
            ]
        elif not units and i in self.ends:
            layer = self.backbone.gap_layer(self.states[0].tokens.shape[2], dim)
            self.layers[i] = layer
            fit = LeastSquares(layer.in_features, dim, False, RIDGE, exact=False)
            for before, state, w in pairs:
                fit.update(*layer.pair(before, state), w)
            layer.set_map(*self._solve(fit))
            self.states = [layer.map_state(state) for state in self.states]
        elif units:
            self.states = [self.view.run_block(state, i) for state in self.states]

    def _solve(self, fit: LeastSquares) -> tuple[Tensor, Tensor]:
        number = sum(state.tokens[..., 0].numel() for state in self.states)
        return solve_oas(fit.sums, number) if self.oas else fit.x_to_y()

    def run(self, state: TokenState) -> dict[int, TokenState]:
        """Return the states after all steps where gaps end, by step."""
        found = {}
        for i in range(self.view.depth):
            if i in self.layers:
                state = self.layers[i].map_state(state)
            elif self.plan[i]:
                state = self.view.run_block(state, i)
            if i in self.ends:
                found[i] = state
        return found


def solve_oas(sums: Sequence[Tensor], number: int) -> tuple[Tensor, Tensor]:
    """Solve for a map with the correlations of x shrunk as in Chen et al., 2010.

    Their number of samples is that of the tokens.
    """
    gram, cross = sums
    total = gram[-1, -1]
    mean, of_y = gram[-1, :-1] / total, cross[-1, :-1] / total
    gram = gram[:-1, :-1] / total - mean.outer(mean)
    cross = cross[:-1, :-1] / total - mean.outer(of_y)
    variances = gram.diagonal().clamp(min=1e-30)
    size = len(gram)
    squares = (gram.square() / variances.outer(variances)).sum().item()
    above = (1 - 2 / size) * squares + size**2
    share = min(1, above / ((number + 1 - 2 / size) * (squares - size)))
    shrunk = (1 - share) * gram + share * variances.diag()
    weight = torch.linalg.solve(shrunk, cross).T
    return weight, of_y - weight @ mean


def measure(chains: Chains) -> Measured:
    """Measure all branches of the network, each alone."""
    fitted = chains.images.draw(CHOOSING)
    compared = chains.images.draw(COMPARED, skip=CHOOSING)
    return _Search(chains.model, [*fitted], [*compared], chains.costs.scope).measure()
