import pytest
import torch

from snnet_mm.models import LoRAStitchingLayer, StitchingLayer


def random_map(out_dim, in_dim):
    return torch.randn(out_dim, in_dim), torch.randn(out_dim)


def test_stitching_layer_is_the_affine_map_it_was_given():
    layer, (weight, bias) = StitchingLayer(3, 5), random_map(5, 3)
    layer.set_map(weight.double(), bias.double())
    x = torch.randn(2, 4, 3)
    torch.testing.assert_close(layer(x), x @ weight.T + bias)
    assert layer.merged()(x).equal(layer(x))
    assert {n for n, p in layer.named_parameters() if p.requires_grad} == {
        'weight',
        'bias',
    }


def test_first_forward_of_lora_is_the_least_squares_map():
    layer, (weight, bias) = LoRAStitchingLayer(6, 5, rank=3), random_map(5, 6)
    layer.set_map(weight, bias)
    base = StitchingLayer(6, 5)
    base.set_map(weight, bias)
    x = torch.randn(2, 4, 6)
    assert layer(x).equal(base(x))
    assert layer.lora_A.abs().min() > 0
    assert not layer.lora_B.any()


@pytest.mark.parametrize('alpha', [None, 1, 8])
def test_formula_of_lora(randomise, alpha):
    kwargs = {} if alpha is None else dict(alpha=alpha)
    layer = randomise(LoRAStitchingLayer(6, 5, rank=3, **kwargs))
    x = torch.randn(2, 4, 6)
    base = x @ layer.weight.T + layer.bias
    update = (x @ layer.lora_A.T) @ layer.lora_B.T
    expected = base + (alpha or 1) / 3 * update
    torch.testing.assert_close(layer(x), expected)
    assert (expected - base).abs().max() > 0.1


def test_a_rank_as_a_share_of_the_smaller_width(randomise):
    for widths in ((8, 12), (12, 8)):
        layer = randomise(LoRAStitchingLayer(*widths, rank=0.25, alpha=None))
        assert layer.lora_A.shape == (2, widths[0])
        x = torch.randn(3, widths[0])
        expected = (
            x @ layer.weight.T + layer.bias + (x @ layer.lora_A.T) @ layer.lora_B.T
        )
        torch.testing.assert_close(layer(x), expected)


def test_only_the_update_is_trained(randomise):
    layer = randomise(LoRAStitchingLayer(6, 5, rank=3))
    trained = {n for n, p in layer.named_parameters() if p.requires_grad}
    assert trained == {'lora_A', 'lora_B'}
    layer(torch.randn(7, 6)).square().sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is None
    assert layer.lora_A.grad.abs().min() > 0
    assert layer.lora_B.grad.abs().min() > 0


def test_merged_lora_is_one_plain_layer(randomise):
    layer = randomise(LoRAStitchingLayer(6, 5, rank=2, alpha=4)).double()
    before = {k: v.clone() for k, v in layer.state_dict().items()}
    merged = layer.merged()
    assert type(merged) is StitchingLayer
    assert merged.weight.dtype == torch.float64
    x = torch.randn(2, 4, 6, dtype=torch.float64)
    torch.testing.assert_close(merged(x), layer(x))
    assert all(v.equal(before[k]) for k, v in layer.state_dict().items())


@pytest.mark.parametrize('rank', [0, -1, 6, 0.0, 1.5, 0.3])
def test_impossible_ranks(rank):
    with pytest.raises(ValueError, match=f'rank={rank}.*stitching_layer.rank'):
        LoRAStitchingLayer(6, 5, rank=rank)
