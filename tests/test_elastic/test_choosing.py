import re

import pytest
from small import small

from snnet_mm.elastic.choosing import candidates_for, reachable
from snnet_mm.elastic.sensitivity import StepRecord
from snnet_mm.elastic.step_costs import StepCosts, probe_chains
from snnet_mm.models import ElasticBackbone
from snnet_mm.runtime.budgets import Budget
from snnet_mm.stitching import parse_budget

VIT = small('vit', final_norm=True)
WIDTHS = (2, 32, 2, 32, 1)
SHARES = 0.75, 0.5, 0.33, 0.25


def record(units, harm):
    """A step whose harm falls as the square of its units rises."""
    errors = {n: (1 - n / units) ** 2 for n in range(units + 1)}
    few = max(1, units // 4)
    harms = {few: harm * errors[few], 0: harm}
    return StepRecord([*range(units)], errors, harms)


RECORDS = [record(2, 0.1), record(32, 0.5), record(2, 0.02), record(32, 0.2), None]


def costs_of(width):
    vit = dict(VIT, arch=dict(VIT['arch'], embed_dims=width))
    probes = probe_chains(ElasticBackbone([vit], []).view)
    return StepCosts(ElasticBackbone([vit], probes), (32, 32))


@pytest.fixture(scope='module')
def costs(milliseconds):
    return costs_of(8)


def choose(costs, *budgets):
    lines = []
    parsed = [parse_budget(text) for text in budgets]
    by_scale = {1: costs}
    bounds = reachable(by_scale, parsed, lines.append)
    found = candidates_for(bounds, RECORDS, {1: 0}, by_scale, lines.append)
    return [listed for (listed,) in found], lines[1:]


@pytest.mark.parametrize('share', [0.7, 0.8])
@pytest.mark.parametrize(
    'cost, unit, symbol',
    [('flops', 1e9, 'G'), ('params', 1e6, 'M'), ('latency', 1, 'ms')],
)
def test_candidates_spend_budgets_of_every_cost(costs, share, cost, unit, symbol):
    limit = share * costs.of(cost, WIDTHS)
    ((_, plan, found, _),), (line,) = choose(costs, f'{limit / unit:.12f}{symbol}')
    assert 0.9 * limit < costs.of(cost, plan) <= limit
    pairs = zip(RECORDS[:4], plan, WIDTHS, strict=False)
    harm = sum(0 if n == width else r.harm(n) for r, n, width in pairs)
    assert found == pytest.approx(harm)
    assert line.endswith(f'divergence {harm:.4f} at 1x')


def test_candidates_of_several_scales_are_ordered_by_expected_divergence(costs):
    """Smaller images allow wider branches, and cost the divergence of their size."""
    probes = probe_chains(costs.view, 0.5)
    by_scale = {1: costs, 0.5: StepCosts(ElasticBackbone([VIT], probes), (32, 32), 0.5)}
    budget = parse_budget('60%'), Budget('flops', 0.6 * costs.of('flops', WIDTHS))
    ((alone,),) = candidates_for([budget], RECORDS, {1: 0.0}, {1: costs}, print)
    for harm, scales in {
        alone.harm / 2: [0.5, 1],
        2 * alone.harm: [1, 0.5],
        3 * alone.harm + 0.01: [1],  # not worth a fit
    }.items():
        harms = {1: 0.0, 0.5: harm}
        (found,) = candidates_for([budget], RECORDS, harms, by_scale, print)
        assert [c.scale for c in found] == scales
        assert [c.harm for c in found] == sorted(c.harm for c in found)
        by = {c.scale: c.harm for c in found}
        assert by.get(0.5, harm) - harm <= by[1]
        for scale, plan, *_ in found:
            assert by_scale[scale].of('flops', plan) <= budget[1].limit


def test_reachable_default_is_shares_of_network():
    costs = costs_of(64)
    total = costs.of('flops', costs.view.widths)
    assert reachable({1: costs}, [], print) == [
        (Budget('share', share), Budget('flops', share * total)) for share in SHARES
    ]
    assert reachable({1: costs}, [parse_budget('40%')], print) == [
        (Budget('share', 0.4), Budget('flops', 0.4 * total))
    ]


def test_reachable_beside_costly_head(costs):
    """Budgets by default are shares of the branches."""
    lines = []
    found = [bound.limit for _, bound in reachable({1: costs}, [], lines.append)]
    branches = sum(costs.step('flops', i, WIDTHS[i]) for i in range(4))
    total = costs.of('flops', WIDTHS)
    wanted = [total - (1 - share) * branches for share in SHARES]
    cheapest = costs.of('flops', (0, 0, 0, 0, 1))
    assert cheapest > 0.25 * total
    assert found == [limit for limit in wanted if limit >= cheapest]
    gain, *left_out = lines
    shares = f'{branches / total:.0%} of all FLOPs', f'{cheapest / total:.0%}'
    assert gain == 'Branches are {}: the smallest budget is {}'.format(*shares)
    assert 1 <= len(found) == 4 - len(left_out)
    assert all(line.endswith('cheapest plan, left out') for line in left_out)


class Beside:
    """Costs of a network beside a head of a given cost."""

    def __init__(self, costs, head):
        self.costs, self.head = costs, head

    def __getattr__(self, name):
        return getattr(self.costs, name)

    def of(self, cost, plan):
        return self.costs.of(cost, plan) + self.head


@pytest.mark.parametrize('budgets', [[], ['90%'], ['0.000009G']])
def test_reachable_little_gain_is_refused_before_measuring(costs, budgets):
    whole, least = (costs.of('flops', p) for p in (WIDTHS, (0, 0, 0, 0, 1)))
    parsed, lines = [parse_budget(text) for text in budgets], []

    def beside(share):
        """Return costs of which the cheapest plan keeps a share."""
        return Beside(costs, (share * whole - least) / (1 - share))

    with pytest.raises(ValueError, match='force=False .* less than 20% of all FLOPs'):
        reachable({1: beside(0.81)}, parsed, lines.append)
    assert lines[-1].endswith('the smallest budget is 81%')
    assert reachable({1: beside(0.79)}, [], lines.append)
    assert reachable({1: beside(0.81)}, [], lines.append, force=True)


def test_reachable_too_low_budget_names_cheapest_plan(costs):
    with pytest.raises(ValueError, match=r"budgets='1%' is invalid") as error:
        choose(costs, '50%', '1%')
    words = r'at least (\S+), the cheapest plan: (0:\S+ 1:\S+) '
    budget, wanted = re.search(words, str(error.value)).groups()
    ((_, plan, *_),), _ = choose(costs, budget)
    assert costs.write(plan) == wanted


@pytest.mark.parametrize('budget', ['100%', '9000G', '300ms', '7M'])
def test_reachable_budget_not_below_network_raises(costs, budget):
    with pytest.raises(ValueError, match=f"budgets='{budget}' .*, the cost"):
        choose(costs, budget)
