"""Plans within budgets of every kind."""

import re
from itertools import product
from types import SimpleNamespace

import pytest

from snnet_mm.elastic import step_costs
from snnet_mm.elastic.budgets import chosen_plans, reachable
from snnet_mm.elastic.sensitivity import StepRecord, widths_of
from snnet_mm.elastic.step_costs import StepCosts, probe_chains
from snnet_mm.models import ElasticBackbone
from snnet_mm.runtime.budgets import Budget
from snnet_mm.stitching import Position, parse_budget

VIT = dict(type='PlainViT', img_size=32, patch_size=8, final_norm=True)
VIT |= dict(arch=dict(embed_dims=8, depth=2, num_heads=2))
WIDTHS = (2, 32, 2, 32, 1)


def record(units, harm):
    """A step whose harm falls as the square of its units rises."""
    errors = {n: (1 - n / units) ** 2 for n in range(units + 1)}
    few = max(1, units // 4)
    harms = {few: harm * errors[few], 0: harm}
    return StepRecord([*range(units)], errors, harms)


RECORDS = [record(2, 0.1), record(32, 0.5), record(2, 0.02), record(32, 0.2), None]


def measure(model, size, **kwargs):
    """Stand-in for measured milliseconds: 1 for each neuron, 10 for each head."""
    parts = {Position(0, i): (10, 1)[i % 2] * n for i, n in enumerate(WIDTHS)}
    for name in model.space.layers:
        step, units = model.space.narrow.get(name, (1, 2))
        parts[name] = (10, 1)[step % 2] * units
    return SimpleNamespace(by_stitch={0: 110.0}, by_part=parts)


@pytest.fixture(scope='module')
def costs():
    probes = probe_chains(ElasticBackbone([VIT], []).view)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(step_costs, 'measure_latency', measure)
        yield StepCosts(ElasticBackbone([VIT], probes), (32, 32))


def choose(costs, *budgets):
    lines = []
    parsed = [parse_budget(text) for text in budgets]
    bounds = reachable(costs, parsed, lines.append)
    return chosen_plans(RECORDS, costs, bounds, lines.append), lines


def harm(plan):
    pairs = zip(RECORDS[:4], plan, WIDTHS, strict=False)
    return sum(0 if n == width else r.harm(n) for r, n, width in pairs)


@pytest.mark.parametrize('share', [pytest.param(0.6, marks=pytest.mark.slow), 0.7])
@pytest.mark.parametrize(
    'cost, unit', [('flops', 1e9), ('params', 1e6), ('latency', 1)]
)
def test_plans_do_least_harm_within_budgets_of_every_cost(costs, share, cost, unit):
    limit = share * costs.of(cost, WIDTHS)
    budget = f'{limit / unit:.12f}{dict(flops="G", params="M", latency="ms")[cost]}'
    (plan,), (line,) = choose(costs, budget)
    plans = product(*([0, *widths_of(width)] for width in WIDTHS[:4]))
    of_all = [(harm(p), costs.of(cost, (*p, 1))) for p in plans]
    least, easy = (
        min(h for h, amount in of_all if amount <= bound)
        for bound in (limit, 0.9 * limit)
    )
    assert costs.of(cost, plan) <= limit
    assert least - 1e-9 <= harm(plan) <= easy
    assert line.endswith(f'divergence {harm(plan):.4f}: {costs.write(plan)}')


def test_shares_are_those_of_the_flops(costs):
    whole = costs.of('flops', WIDTHS)
    plans, lines = choose(costs, '75%', '50%')
    for share, plan, line in zip((0.75, 0.5), plans, lines, strict=True):
        assert 0.8 * share * whole < costs.of('flops', plan) <= share * whole
        assert line.startswith(f'  {100 * share:g}%: ')


def test_budgets_by_default_are_shares_of_the_network():
    wide = dict(VIT, arch=dict(embed_dims=64, depth=2, num_heads=2))
    probes = probe_chains(ElasticBackbone([wide], []).view)
    costs = StepCosts(ElasticBackbone([wide], probes), (32, 32))
    assert reachable(costs, [], print) == [
        (Budget('share', share), Budget('flops', share * costs.of('flops', whole)))
        for whole in [costs.view.widths]
        for share in (0.75, 0.5, 0.33, 0.25)
    ]


def test_beside_a_costly_head_they_are_shares_of_the_branches(costs):
    lines = []
    found = [bound.limit for _, bound in reachable(costs, [], lines.append)]
    branches = sum(costs.step('flops', i, WIDTHS[i]) for i in range(4))
    total = costs.of('flops', WIDTHS)
    wanted = [total - (1 - s) * branches for s in (0.75, 0.5, 0.33, 0.25)]
    cheapest = costs.of('flops', (0, 0, 0, 0, 1))
    assert cheapest > 0.25 * total
    assert found == [limit for limit in wanted if limit >= cheapest]
    assert 1 <= len(found) == 4 - len(lines)
    assert all(line.endswith('below the cheapest plan, left out') for line in lines)


def test_a_budget_below_the_cheapest_plan_names_it(costs):
    with pytest.raises(ValueError, match=r"budgets='1%' is invalid") as error:
        choose(costs, '50%', '1%')
    words = r'at least (\S+), the cheapest plan: (0:\S+ 1:\S+) '
    budget, wanted = re.search(words, str(error.value)).groups()
    (plan,), _ = choose(costs, budget)
    assert costs.write(plan) == wanted


@pytest.mark.parametrize('budget', ['100%', '9000G', '300ms', '7M'])
def test_a_budget_not_below_the_network_is_refused(costs, budget):
    words = f"budgets='{budget}' is invalid.*, the cost of the network"
    with pytest.raises(ValueError, match=words):
        choose(costs, budget)
