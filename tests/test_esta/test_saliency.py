"""Scores from the gradients of steps (ESTA, section 4.2)."""

from types import SimpleNamespace

import pytest
import torch
from mmengine.model import ImgDataPreprocessor
from mmengine.optim import OptimWrapper
from torch import nn
from toy_classifier import ToyClassifier

from snnet_mm.esta import ImportanceSampler
from snnet_mm.esta.saliency import saliency
from snnet_mm.models import SandwichWrapper, set_stitches
from snnet_mm.stitching import Cost, CostTable

COSTS = CostTable({i: Cost(10 * i, i) for i in range(6)}, (8, 8))


def build():
    return ImportanceSampler(COSTS, warm_up=2, num_groups=3)


def test_saliency_by_hand():
    layer = nn.Linear(2, 1)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[2.0, -3.0]]))
        layer.bias.fill_(0.5)
    layer(torch.tensor([[1.0, 4.0]])).sum().backward()
    # |1 * 2| + |4 * -3| + |1 * 0.5|; a parameter without gradient has no part in it.
    assert saliency([*layer.parameters(), nn.Parameter(torch.ones(3))]) == 14.5
    with pytest.raises(ValueError, match='no gradient.*lora, stitching_layer'):
        saliency([nn.Parameter(torch.ones(3))])


@pytest.fixture
def model(build_snnet, randomise):
    preprocessor = ImgDataPreprocessor([100, 110, 120], [50, 51, 52])
    plugins = dict(stitch_biases=dict(type='StitchBiases'))
    net = build_snnet(anchor=dict(lora=dict(rank=2)), plugins=plugins)
    return randomise(ToyClassifier(net, data_preprocessor=preprocessor))


DATA = torch.linspace(-1, 1, 2 * 3 * 32 * 32).view(2, 3, 32, 32), torch.tensor([0, 3])


def scored_step(model, ids, loss=None, **kwargs):
    """Scores of one step, and the gradients before it."""
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(trained, 0.1, **kwargs)
    sampler = build()
    (hook,), hub = sampler.hooks(), SimpleNamespace(runtime_info={})
    parts = dict(model=model, optim_wrapper=OptimWrapper(optimizer), message_hub=hub)
    hook.before_train(SimpleNamespace(**parts))
    hook.trained = list(set_stitches(model, ids).values())
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
    blocks = ['anchors.0.blocks.0.', *(f'anchors.1.blocks.{i}.' for i in range(3, 7))]
    wanted = {}
    for i, of in (
        (1, ['anchors.1.', 'stitch_biases.1']),
        (2, [*blocks, 'stitching_layers.0to1_0.', 'stitch_biases.2']),
    ):
        run = ('head.', *(f'backbone.{prefix}' for prefix in of))
        wanted[i] = sum(v for name, v in products.items() if name.startswith(run))
    assert sampler.scores == pytest.approx(wanted)
    assert wanted[2] < sum(products.values())


@pytest.mark.parametrize('fused', [False, True])
@pytest.mark.parametrize('skipped', [False, True])
def test_the_scale_of_amp_cancels_and_skipped_steps_score_nothing(
    model, fused, skipped
):
    scaler = torch.amp.GradScaler('cpu', init_scale=1024.0)
    sampler, optimizer, products = scored_step(
        model, [5], lambda loss: scaler.scale(loss).backward(), fused=fused
    )
    if skipped:
        model.head[0].weight.grad[0, 0] = torch.inf
    scaler.step(optimizer)
    wanted = {} if skipped else {5: sum(products.values()) / 1024}
    assert sampler.scores == pytest.approx(wanted, rel=1e-5)
    assert sampler.num_scored_steps == (not skipped)
