"""Sampling by importance: scores from the gradients of steps (ESTA, section 4.2)."""

from collections import Counter

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from mmengine.model import ImgDataPreprocessor
from mmengine.optim import OptimWrapper, OptimWrapperDict
from torch import nn
from toy_classifier import ToyClassifier

from snnet_mm.engine import ImportanceSampler, SandwichSampler
from snnet_mm.engine.saliency import SaliencyScorer, saliency
from snnet_mm.models import SandwichWrapper, set_stitch, set_stitches
from snnet_mm.stitching import Cost, CostTable, TwoWaySpace

# Intervals of thirds: {0, 2}, {3, 4, 5}, {1}.
FLOPS = {0: 0, 1: 100, 2: 10, 3: 40, 4: 42, 5: 50}
COSTS = CostTable({i: Cost(f, 7 * f) for i, f in FLOPS.items()}, (8, 8))


def build(warm_up=2, num_groups=3, **kwargs):
    return ImportanceSampler(COSTS, warm_up, num_groups, seed=3, **kwargs)


# --- drawing


def test_the_score_is_a_moving_average():
    sampler = build()
    for saliency_of_4 in (2.0, 7.0, 1.0):
        sampler.record({4: saliency_of_4, 5: 3.0})
    first = 2.0
    second = 0.9 * first + 0.1 * 7
    assert sampler.scores == pytest.approx({4: 0.9 * second + 0.1, 5: 3})
    assert sampler.num_scored_steps == 3
    quick = build(momentum=0.0)
    quick.record({4: 2.0})
    quick.record({4: 7.0})
    assert quick.scores == {4: 7}


def test_draws_are_uniform_before_and_by_softmax_after_the_warm_up():
    sampler = build()
    sampler.record({3: 1.0, 4: 2.0})
    drawn = Counter(i for t in range(6000) for i in sampler.sample(t))
    assert all(900 < drawn[i] < 1100 for i in FLOPS)
    sampler.record({5: 0.5})
    shares = np.exp([1.0, 2.0, 0.5]) / np.exp([1.0, 2.0, 0.5]).sum()
    np.testing.assert_allclose(sampler.probabilities((3, 4, 5)), shares)
    drawn = Counter(i for t in range(9000) for i in sampler.sample(t))
    # Every interval equally often; without scores all of it alike.
    assert 2850 < drawn[1] < 3150
    assert all(1400 < drawn[i] < 1600 for i in (0, 2))
    for i, share in zip((3, 4, 5), shares, strict=True):
        assert abs(drawn[i] / 3000 - share) < 0.03


def test_what_has_no_score_counts_as_the_mean():
    sampler = build()
    sampler.record({3: 1.0, 5: 4.0})
    shares = np.exp([1.0, 2.5, 4.0]) / np.exp([1.0, 2.5, 4.0]).sum()
    np.testing.assert_allclose(sampler.probabilities((3, 4, 5)), shares)


def test_large_scores_are_no_problem():
    sampler = build()
    sampler.record({3: 1e4, 4: 1e4, 5: 0.0})
    assert sampler.probabilities((3, 4, 5)).tolist() == [0.5, 0.5, 0]


def test_scores_survive_a_checkpoint():
    straight, resumed = build(), build()
    for t in range(4):
        straight.record({3: float(t), 4: 2.0})
    resumed.load_state_dict(straight.state_dict())
    assert resumed.state_dict() == straight.state_dict()
    draws = [straight.sample(t) for t in range(30)]
    assert [resumed.sample(t) for t in range(30)] == draws
    # They are a copy: what comes later is not in it.
    state = straight.state_dict()
    straight.record({3: 9.0})
    assert state == resumed.state_dict()


@pytest.mark.parametrize(
    'kwargs, message',
    [
        (dict(warm_up=0), 'warm_up=0 .*no stitch has a score.*sampler.warm_up'),
        (dict(momentum=1), 'momentum=1 .*allowed is 0 to below 1'),
        (dict(per_rank=True), 'per_rank=True .*gradients of several stitches'),
        (dict(num_groups=0), 'num_groups=0; .*sampler.num_groups'),
        (dict(cost='joules'), "'joules' is unknown"),
    ],
)
def test_wrong_settings_are_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        build(**kwargs)


def test_the_largest_anchor_comes_along():
    space = TwoWaySpace([4, 8])
    costs = CostTable({i: Cost(10 * i, i) for i in space.ids}, (8, 8))
    inner = dict(type='ImportanceSampler', warm_up=1, num_groups=2)
    sampler = SandwichSampler(costs, space, sampler=inner, anchors='slowest')
    middle = set(space.ids) - {1}
    assert {i for group in sampler.scorer.groups for i in group} == middle
    drawn = Counter()
    for t in range(1300):
        slowest, stitch = sampler.sample(t)
        assert slowest == 1
        drawn[stitch] += 1
    assert set(drawn) == middle
    assert all(60 < n < 140 for n in drawn.values())
    sampler.scorer.record({0: 0.0, 2: 0.0, 3: 0.0, 4: 0.0, 6: 50.0})
    drawn = Counter(sampler.sample(t)[1] for t in range(400))
    low, high = sampler.scorer.groups
    assert low == (0, 2, 3, 4, 6)
    assert 150 < drawn[6] < 250
    assert drawn[6] + sum(drawn[i] for i in high) > 395
    assert SandwichSampler(costs, space).scorer is None
    with pytest.raises(ValueError, match=r"anchors='all'.*\('route', 'slowest'\)"):
        SandwichSampler(costs, space, anchors='all')


# --- scoring


def test_saliency_by_hand():
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, -3.0]]))
        layer.bias.fill_(0.5)
    layer(torch.tensor([[1.0, 4.0]])).sum().backward()
    # |1 * 2| + |4 * -3| + |1 * 0.5|; a parameter without gradient has no part in it.
    assert saliency([*layer.parameters(), nn.Parameter(torch.ones(3))]) == 14.5
    with pytest.raises(ValueError, match='no parameter of this stitch has a gradient'):
        saliency([nn.Parameter(torch.ones(3))])


@pytest.fixture
def model(build_snnet, randomise):
    preprocessor = ImgDataPreprocessor([100, 110, 120], [50, 51, 52])
    net = build_snnet(anchor=dict(lora=dict(rank=2)), stitch_bias=True)
    return randomise(ToyClassifier(net, data_preprocessor=preprocessor))


DATA = torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32), torch.tensor([0, 3])


def scored_step(model, ids, loss=None, **kwargs):
    """Scores of one step, and the gradients before it."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1, **kwargs)
    sampler = build()
    scorer = SaliencyScorer(model, OptimWrapper(optimizer), sampler)
    scorer.trained = list(set_stitches(model, ids).values())
    losses = model(*DATA, mode='loss')
    total = sum(v for k, v in losses.items() if 'loss' in k)
    (loss or torch.Tensor.backward)(total)
    products = {
        k: (p.grad * p).abs().sum().item()
        for k, p in model.named_parameters()
        if p.grad is not None
    }
    return sampler, optimizer, products


def test_all_gradients_of_one_stitch_are_its_own(model):
    sampler, optimizer, products = scored_step(model, [5])
    optimizer.step()
    assert sampler.scores == pytest.approx({5: sum(products.values())})
    assert {'backbone.stitch_biases.5', 'head.0.weight'} < products.keys()


def test_of_several_stitches_each_has_what_it_runs(model):
    wrapper = SandwichWrapper(model, 'hard', 0.5)
    sampler, optimizer, products = scored_step(wrapper, [1, 2])
    space = model.backbone.space
    assert space.describe(space[2]) == 'fast[0:1] > slow[3:7]'
    optimizer.step()
    prefixes = {
        1: ['anchors.1.', 'stitch_biases.1'],
        2: [
            'anchors.0.blocks.0.',
            *(f'anchors.1.blocks.{i}.' for i in range(3, 7)),
            'stitching_layers.0to1_0.',
            'stitch_biases.2',
        ],
    }
    wanted = {
        i: sum(
            value
            for name, value in products.items()
            if name.startswith(('head.', *(f'backbone.{p}' for p in of)))
        )
        for i, of in prefixes.items()
    }
    assert sampler.scores == pytest.approx(wanted)
    assert wanted[2] < sum(products.values())


@pytest.mark.parametrize('fused', [False, True])
def test_the_scale_of_amp_cancels(model, fused):
    scaler = torch.amp.GradScaler('cpu', init_scale=1024.0)
    sampler, optimizer, products = scored_step(
        model, [5], lambda loss: scaler.scale(loss).backward(), fused=fused
    )
    scaler.step(optimizer)
    assert sampler.scores == pytest.approx({5: sum(products.values()) / 1024}, rel=1e-5)


@pytest.mark.parametrize('fused', [False, True])
def test_a_step_that_amp_skips_scores_nothing(model, fused):
    scaler = torch.amp.GradScaler('cpu', init_scale=1024.0)
    sampler, optimizer, _ = scored_step(
        model, [5], lambda loss: scaler.scale(loss).backward(), fused=fused
    )
    model.head[0].weight.grad[0, 0] = torch.inf
    scaler.step(optimizer)
    assert sampler.state_dict() == build().state_dict()


def test_several_optimizers_are_refused(model):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    several = OptimWrapperDict(a=OptimWrapper(optimizer))
    with pytest.raises(ValueError, match='one optimizer.*not OptimWrapperDict'):
        SaliencyScorer(model, several, build())


def test_a_scorer_that_is_removed_scores_no_more(model):
    set_stitch(model, 5)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    sampler = build()
    SaliencyScorer(model, OptimWrapper(optimizer), sampler).remove()
    F.cross_entropy(model(DATA[0]), DATA[1]).backward()
    optimizer.step()
    assert not sampler.scores
