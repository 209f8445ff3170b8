"""Sampling and choosing stitches by importance (ESTA, section 4.2)."""

from collections import Counter
from math import exp
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from mmengine.model import ImgDataPreprocessor
from mmengine.optim import OptimWrapper
from small import ToyClassifier
from tables import table_of
from torch import nn

from snnet_mm.esta import ImportanceSampler, importance_results
from snnet_mm.esta.importance import saliency
from snnet_mm.models import SandwichWrapper, set_stitches
from snnet_mm.stitching import TwoWaySpace
from snnet_mm.training import SandwichSampler

# Three intervals of 10 to 40: {0, 2}, {6, 7}, {5, 3, 1}; stitch 4 is not scored.
COSTS = table_of({0: 10, 2: 12, 4: 12, 6: 20, 7: 25, 5: 32, 3: 35, 1: 40})
SCORES = {0: 1.0, 2: 3.0, 6: 7.0, 7: 6.0, 5: 0.5, 3: 0.6, 1: 0.2}


def test_importance_results_deploy_best_of_every_interval():
    results = importance_results(COSTS, SCORES, num_groups=3)
    third = exp(0.5) + exp(0.6) + exp(0.2)
    assert (results.metric, [*results]) == ('deployment', sorted(SCORES))
    assert results.scores() == pytest.approx(
        {
            0: -1 + exp(1) / (exp(1) + exp(3)),
            2: 1,
            6: 2,
            7: 0 + exp(6) / (exp(6) + exp(7)),
            5: 1 + exp(0.5) / third,
            3: 3,
            1: 1 + exp(0.2) / third,
        }
    )
    assert {r.id: r.metrics['importance'] for r in results.rows} == SCORES
    # Stitch 0 is on the front for being the cheapest of all.
    assert [row.id for row in results.front()] == [0, 2, 6, 3]
    # Stitches without a score are left out, and no large one overflows.
    few = importance_results(COSTS, {0: 1e4, 2: 2e4, 7: 2.0}, num_groups=3)
    assert few.scores() == {0: -1, 2: 1, 7: 2}


# --- sampling

# Intervals of thirds: {0, 2}, {3, 4, 5}, {1}.
THIRDS = {0: 0, 1: 100, 2: 10, 3: 40, 4: 42, 5: 50}


def build(warm_up=2, num_groups=3, **kwargs):
    return ImportanceSampler(table_of(THIRDS), warm_up, num_groups, seed=3, **kwargs)


def test_importance_sampler_score_is_moving_average():
    sampler = build()
    for saliency_of_4 in (2.0, 7.0, 1.0):
        sampler.record({4: saliency_of_4, 5: 3.0})
    second = 0.9 * 2.0 + 0.1 * 7
    assert sampler.scores == pytest.approx({4: 0.9 * second + 0.1, 5: 3})
    assert sampler.num_scored_steps == 3


def test_importance_sampler_draws_by_softmax_after_warm_up():
    """Draws before it are uniform."""
    sampler = build()
    sampler.record({3: 1.0, 4: 2.0})
    drawn = Counter(i for t in range(1200) for i in sampler.sample(t))
    assert all(150 < drawn[i] < 250 for i in THIRDS)
    sampler.record({5: 0.5})
    shares = np.exp([1.0, 2.0, 0.5]) / np.exp([1.0, 2.0, 0.5]).sum()
    np.testing.assert_allclose(sampler.probabilities((3, 4, 5)), shares)
    drawn = Counter(i for t in range(3000) for i in sampler.sample(t))
    # Every interval equally often; without scores all of it alike.
    wanted = {1: 1000, 0: 500, 2: 500}
    wanted |= {i: 1000 * share for i, share in zip((3, 4, 5), shares, strict=True)}
    assert all(abs(drawn[i] - number) < 100 for i, number in wanted.items())


def test_importance_sampler_largest_anchor_comes_along():
    space = TwoWaySpace([4, 8])
    costs = table_of({i: 10 * i for i in space.ids})
    inner = dict(type='ImportanceSampler', warm_up=1, num_groups=2)
    sampler = SandwichSampler(costs, space, sampler=inner, anchors='slowest')
    others = {i for group in sampler.sampler.groups for i in group}
    assert others == set(space.ids) - {1}
    assert {sampler.sample(t) for t in range(400)} == {(1, i) for i in others}
    (hook,) = sampler.hooks()
    assert hook.sampler is sampler.sampler


# --- saliency


def test_saliency_by_hand():
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, -3.0]]))
        layer.bias.fill_(0.5)
    layer(torch.tensor([[1.0, 4.0]])).sum().backward()
    # |1 * 2| + |4 * -3| + |1 * 0.5|; a parameter without gradient has no part in it.
    assert saliency([*layer.parameters(), nn.Parameter(torch.ones(3))]) == 14.5
    with pytest.raises(ValueError, match='no gradient.*frozen_stages'):
        saliency([nn.Parameter(torch.ones(3))])


@pytest.fixture
def model(build_snnet, randomise):
    preprocessor = ImgDataPreprocessor([100, 110, 120], [50, 51, 52])
    plugins = dict(stitch_biases=dict(type='StitchBiases'))
    net = build_snnet(anchor=dict(lora=dict(rank=2)), plugins=plugins)
    return randomise(ToyClassifier(net, data_preprocessor=preprocessor))


DATA = torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32), torch.tensor([0, 3])


def scored_step(model, ids, scale=lambda loss: loss, **kwargs):
    """A sampler that scores the next step, its optimizer, and products in this step."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1, **kwargs)
    sampler = build()
    (hook,), hub = sampler.hooks(), SimpleNamespace(runtime_info={})
    parts = dict(model=model, optim_wrapper=OptimWrapper(optimizer), message_hub=hub)
    hook.before_train(SimpleNamespace(**parts))
    hook.trained = list(set_stitches(model, ids).values())
    losses = model(*DATA, mode='loss')
    scale(sum(v for k, v in losses.items() if 'loss' in k)).backward()
    products = {
        k: (p.grad * p).abs().sum().item()
        for k, p in model.named_parameters()
        if p.grad is not None
    }
    return sampler, optimizer, products


def test_importance_hook_one_stitch_has_all_gradients(model):
    sampler, optimizer, products = scored_step(model, [5])
    optimizer.step()
    assert sampler.scores == pytest.approx({5: sum(products.values())})
    assert {'backbone.stitch_biases.5', 'head.0.weight'} < products.keys()


def test_importance_hook_several_stitches_have_what_they_run(model):
    wrapper = SandwichWrapper(model, 'hard', 0.5)
    sampler, optimizer, products = scored_step(wrapper, [1, 2])
    space = model.backbone.space
    assert space.describe(space[2]) == 'fast[0:1] > slow[3:7]'
    optimizer.step()
    blocks = ['anchors.0.blocks.0.', *(f'anchors.1.blocks.{i}.' for i in range(3, 7))]
    own = {
        1: ['anchors.1.', 'stitch_biases.1'],
        2: [*blocks, 'stitching_layers.0to1_0.', 'stitch_biases.2'],
    }
    wanted = {}
    for i, parts in own.items():
        run = ('head.', *(f'backbone.{prefix}' for prefix in parts))
        wanted[i] = sum(v for name, v in products.items() if name.startswith(run))
    assert sampler.scores == pytest.approx(wanted)
    assert wanted[2] < sum(products.values())


@pytest.mark.parametrize(('fused', 'skipped'), [(False, True), (True, False)])
def test_importance_hook_scaled_and_skipped_steps(model, fused, skipped):
    """The scale of AMP cancels, and skipped steps score nothing."""
    scaler = torch.amp.GradScaler('cpu', init_scale=1024.0)
    sampler, optimizer, products = scored_step(model, [5], scaler.scale, fused=fused)
    if skipped:
        model.head[0].weight.grad[0, 0] = torch.inf
    scaler.step(optimizer)
    wanted = {} if skipped else {5: sum(products.values()) / 1024}
    assert sampler.scores == pytest.approx(wanted, rel=1e-5)
    assert sampler.num_scored_steps == (not skipped)
