import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import convnext
from states import states_of
from torch.testing import assert_close

from snnet_mm.anchors.low_rank import LoRAConv2d

IMAGES = torch.randn(2, 3, 32, 32)


@pytest.mark.parametrize('lora', [dict(targets=('qkv',), alpha=6), dict(targets='all')])
def test_it_is_the_plain_vit_with_updated_weights(build_vit, lora):
    """As in loralib; all layers are updated, or some."""
    kwargs = dict(final_norm=True, layer_scale_init=None)
    plain, vit = build_vit(**kwargs), build_vit(lora=dict(rank=2) | lora, **kwargs)
    vit.load_state_dict(plain.state_dict(), strict=False)
    before, state = states_of(plain, IMAGES)[-1].tokens, vit.state_dict()
    updated = {k.removesuffix('.lora_A') for k in state if k.endswith('lora_A')}
    if lora['targets'] == 'all':
        names = 'attn.qkv', 'attn.proj', 'mlp.fc1', 'mlp.fc2'
        blocks = {f'blocks.{i}.{name}' for i in range(3) for name in names}
        assert updated == {'patch_embed.proj'} | blocks
        size = vit.patch_size
        assert state['patch_embed.proj.lora_A'].shape == (2 * size, 3 * size)
    for name in updated:
        weight = plain.get_parameter(f'{name}.weight').data
        update = state[f'{name}.lora_B'] @ state[f'{name}.lora_A']
        weight += lora.get('alpha', 1) / 2 * update.view_as(weight)
    wanted, found = (states_of(net, IMAGES)[-1].tokens for net in (plain, vit))
    assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert (wanted - before).abs().max() > 0.01


def test_depthwise_convolutions_have_updates_of_their_groups():
    settings = convnext(lora=dict(rank=2, targets='all'))
    net = MODELS.build(settings).eval()
    images = torch.randn(1, 3, 64, 64)
    wanted = [*net(images)]
    convs = {k: m for k, m in net.named_modules() if isinstance(m, LoRAConv2d)}
    assert {1, *(block_dim for block_dim in net.block_dims)} == {
        conv.groups for conv in convs.values()
    }
    with torch.no_grad():
        for conv in convs.values():
            conv.lora_B.normal_()
    found = [*net(images)]
    for name, conv in convs.items():
        net.set_submodule(name, conv.merged())
    for before, updated, merged in zip(wanted, found, net(images), strict=True):
        assert (updated - before).abs().max() > 0.01
        assert_close(merged, updated, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(('frozen', 'targets'), [(2, ('qkv', 'proj')), (-1, 'all')])
def test_only_the_updates_are_trained(build_vit, frozen, targets):
    vit = build_vit(lora=dict(rank=2, targets=targets), frozen_stages=frozen)
    trained = {k for k, p in vit.named_parameters() if p.requires_grad}
    updates = [k for k, _ in vit.named_parameters() if 'lora' in k]
    assert trained == {
        k for k in updates if frozen < 0 or int(k.split('.')[1]) >= frozen
    }
    vit(IMAGES)[0].square().sum().backward()
    for name, parameter in vit.named_parameters():
        assert (parameter.grad is not None and bool(parameter.grad.any())) == (
            name in trained
        )
    assert vit.layer_depth('blocks.1.attn.qkv.lora_A') == (2, 5)
