import pytest
import torch
from states import states_of
from torch.testing import assert_close

from snnet_mm.anchors import PlainViT


@pytest.fixture
def pair(build_vit):
    """A plain ViT, and one with low-rank updates that has its weights."""

    def build(**lora):
        kwargs = dict(final_norm=True, layer_scale_init=None)
        plain = build_vit(**kwargs)
        vit = build_vit(lora=dict(rank=2) | lora, **kwargs)
        vit.load_state_dict(plain.state_dict(), strict=False)
        return plain, vit

    return build


def tokens(vit, images):
    return states_of(vit, images)[-1].tokens


@pytest.mark.parametrize(
    'lora', [dict(), dict(targets=('qkv',), alpha=6), dict(targets=('proj',))]
)
def test_it_is_the_plain_vit_with_updated_weights(pair, lora):
    plain, vit = pair(**lora)
    images = torch.randn(2, 3, 32, 32)
    before = tokens(plain, images)
    for name, update in vit.state_dict().items():
        if name.endswith('lora_A'):
            up = vit.state_dict()[name.replace('lora_A', 'lora_B')]
            weight = plain.get_parameter(name.replace('lora_A', 'weight'))
            weight.data += lora.get('alpha', 1) / 2 * up @ update
    assert_close(tokens(vit, images), tokens(plain, images), rtol=1e-4, atol=1e-5)
    assert (tokens(plain, images) - before).abs().max() > 0.01


def test_new_updates_are_half_zero():
    vit = PlainViT(dict(embed_dims=8, depth=1, num_heads=2), 32, 8, lora=dict(rank=3))
    updates = {k: v for k, v in vit.state_dict().items() if '.lora_' in k}
    assert {k[-1] for k, v in updates.items() if v.any()} == {'A'}
    assert {k[-1] for k, v in updates.items() if not v.any()} == {'B'}


def test_only_the_updates_are_trained(pair):
    _, vit = pair()
    trained = {k for k, p in vit.named_parameters() if p.requires_grad}
    assert trained == {k for k, _ in vit.named_parameters() if 'lora' in k}
    tokens(vit, torch.randn(2, 3, 32, 32)).square().sum().backward()
    for name, parameter in vit.named_parameters():
        assert (parameter.grad is not None) == (name in trained)
        if name in trained:
            assert parameter.grad.any()


def test_frozen_stages_have_no_updates_that_train(build_vit):
    vit = build_vit(lora=dict(rank=2), frozen_stages=2)
    trained = {k.split('.')[1] for k, p in vit.named_parameters() if p.requires_grad}
    assert trained == {'2'}
    assert vit.layer_depth('blocks.1.attn.qkv.lora_A') == (2, 5)
