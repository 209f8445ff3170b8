from functools import partial

import pytest
import torch

from snnet_mm.models import LoRAStitchingLayer, StitchingLayer


def trained(layer):
    return {n for n, p in layer.named_parameters() if p.requires_grad}


@pytest.mark.parametrize('kind', [StitchingLayer, partial(LoRAStitchingLayer, rank=3)])
def test_stitching_layer_begins_as_the_map_given(kind):
    layer, weight, bias = kind(6, 5), torch.randn(5, 6), torch.randn(5)
    layer.set_map(weight.double(), bias.double())
    x = torch.randn(2, 4, 6)
    for each in (layer, layer.merged()):
        torch.testing.assert_close(each(x), x @ weight.T + bias)
    assert trained(layer.merged()) == {'weight', 'bias'}


@pytest.mark.parametrize(
    ('settings', 'rank', 'scale'),
    [
        (dict(rank=3), 3, 1 / 3),
        (dict(rank=3, alpha=8), 3, 8 / 3),
        (dict(rank=0.25, alpha=None, train_bias=False), 2, 1),  # of the smaller width
    ],
)
@pytest.mark.parametrize('widths', [(8, 12), (12, 8)])
def test_lora_stitching_layer_formula_and_what_it_trains(
    randomise, settings, rank, scale, widths
):
    layer = randomise(LoRAStitchingLayer(*widths, **settings))
    assert layer.lora_A.shape == (rank, widths[0])
    x = torch.randn(2, 4, widths[0])
    base = x @ layer.weight.T + layer.bias
    update = (x @ layer.lora_A.T) @ layer.lora_B.T
    torch.testing.assert_close(layer(x), base + scale * update)
    assert (scale * update).abs().max() > 0.1
    biases = {'bias'} if settings.get('train_bias', True) else set()
    assert trained(layer) == {'lora_A', 'lora_B'} | biases
    layer(x).square().sum().backward()
    assert layer.weight.grad is None
    assert layer.lora_A.grad.abs().min() > 0
    assert layer.lora_B.grad.abs().min() > 0


@pytest.mark.parametrize('rank', [0, 6, 1.5, 0.3])
def test_lora_stitching_layer_impossible_ranks_are_refused(rank):
    with pytest.raises(ValueError, match='stitching_layer.rank'):
        LoRAStitchingLayer(6, 5, rank=rank)
