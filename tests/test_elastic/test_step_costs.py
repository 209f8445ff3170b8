"""Predicted costs of plans, against the counted costs of their chains."""

import random
from copy import deepcopy

import pytest
from families import families
from small import small

from snnet_mm.costs import cost_table
from snnet_mm.elastic.step_costs import StepCosts, probe_chains, table_of
from snnet_mm.models import ElasticBackbone

SIZE = 64, 64
VIT = small('vit', patch_size=16, final_norm=True)


def costs_of(config, **kwargs):
    def build(chains):
        return ElasticBackbone([deepcopy(config)], chains, **kwargs)

    return StepCosts(build(probe_chains(build([]).view)), SIZE), build


def random_plans(view, number):
    draw, plans = random.Random(0), []
    while len(plans) < number:
        plan = []
        for i, width in enumerate(view.widths):
            some = [
                width,
                max(1, width - 2),
                max(1, width // 16),
                draw.randint(1, width),
            ]
            plan.append(draw.choice([*some, *[0] * 2 * (i in view.skippable)]))
        plans += [tuple(plan)] if tuple(plan) != view.widths else []
    return plans


QUICK = 'PlainViT', 'mmseg.MixVisionTransformer', 'mmpretrain.BEiTViT', 'mmseg.ResNet'


@pytest.mark.parametrize('config', [*families(QUICK)])
def test_step_costs_flops_and_parameters_are_exact(config):
    pytest.importorskip('mmdet.models')
    pytest.importorskip('mmpretrain.models')
    costs, build = costs_of(config)
    plans = random_plans(costs.view, 4)
    backbone = build([costs.write(plan) for plan in plans])
    assert table_of({1: costs}, backbone.space) == cost_table(backbone, SIZE)


@pytest.mark.parametrize('full_maps', [False, True])
def test_step_costs_at_scales_are_exact(full_maps):
    """A chain of smaller images costs what it counts, on images of full size."""
    kwargs, costs = dict(full_maps=full_maps), {}
    for scale in (1, 0.5):
        net = ElasticBackbone([deepcopy(VIT)], [], **kwargs)
        net = ElasticBackbone(
            [net.view.anchor], probe_chains(net.view, scale), **kwargs
        )
        costs[scale] = StepCosts(net, SIZE, scale)
    plans = (1, 32, 0, 5, 1), (2, 32, 2, 32, 1)
    chains = [costs[0.5].write(plan) for plan in plans] + [costs[1].write(plans[0])]
    assert chains == ['0.5x: 0:1/32 1:0/5', '0.5x', '0:1/32 1:0/5']
    backbone = ElasticBackbone([deepcopy(VIT)], chains, **kwargs)
    found = cost_table(backbone, SIZE)
    assert found == table_of(costs, backbone.space)
    whole = ElasticBackbone([deepcopy(VIT)], ['0:1/32'], **kwargs)
    assert found[2].flops == cost_table(whole, (32, 32))[0].flops
    assert found[2].params == found[0].params


def test_step_costs_gaps_end_at_read_blocks():
    costs, _ = costs_of(VIT, out_indices=(0, 1))
    alone, _ = costs_of(VIT, out_indices=(1,))
    plan, tokens = (0, 0, 0, 0, 1), 17
    assert costs.of('flops', plan) - alone.of('flops', plan) == tokens * 8**2
    assert costs.of('params', plan) - alone.of('params', plan) == 8**2 + 8


def test_step_costs_milliseconds_of_parts(milliseconds):
    costs, _ = costs_of(VIT)
    assert costs.of('latency', (2, 32, 2, 32, 1)) == 204
    assert costs.of('latency', (1, 32, 2, 11, 1)) == pytest.approx(204 - 10 - 21)
    assert costs.of('latency', (2, 0, 0, 32, 1)) == pytest.approx(204 - 52 + 3)
