import pytest
import torch
from mmengine.registry import MODELS
from staged_anchors import convnext
from states import states_of
from torch.testing import assert_close

from snnet_mm.anchors.low_rank import LoRAConv2d

IMAGES = torch.randn(2, 3, 32, 32)


@pytest.mark.parametrize('lora', [dict(targets=('qkv',), alpha=6), dict(targets='all')])
def test_low_rank_update_equals_updated_weights(build_vit, lora):
    """As in loralib; all layers are updated, or some."""
    kwargs = dict(final_norm=True, layer_scale_init=None)
    plain, vit = build_vit(**kwargs), build_vit(lora=dict(rank=2) | lora, **kwargs)
    vit.load_state_dict(plain.state_dict(), strict=False)
    before, state = states_of(plain, IMAGES)[-1].tokens, vit.state_dict()
    updated = {k.removesuffix('.lora_A') for k in state if k.endswith('lora_A')}
    names, expected = ['attn.qkv'], set()
    if lora['targets'] == 'all':
        names, expected = (
            [*names, 'attn.proj', 'mlp.fc1', 'mlp.fc2'],
            {'patch_embed.proj'},
        )
        assert state['patch_embed.proj.lora_A'].shape == (2 * 8, 3 * 8)
    assert updated == expected | {
        f'blocks.{i}.{name}' for i in range(3) for name in names
    }
    for name in updated:
        weight = plain.get_parameter(f'{name}.weight').data
        update = state[f'{name}.lora_B'] @ state[f'{name}.lora_A']
        weight += lora.get('alpha', 1) / 2 * update.view_as(weight)
    wanted, found = (states_of(net, IMAGES)[-1].tokens for net in (plain, vit))
    assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert (wanted - before).abs().max() > 0.01


@torch.no_grad()
def test_lora_conv2d_updates_groups_of_depthwise_convolutions():
    net = MODELS.build(convnext(lora=dict(rank=2, targets='all'))).eval()
    images = torch.randn(1, 3, 64, 64)
    convs = {k: m for k, m in net.named_modules() if isinstance(m, LoRAConv2d)}
    assert {conv.groups for conv in convs.values()} == {1, *net.block_dims}
    before = net(images)
    for conv in convs.values():
        conv.lora_B.normal_()
    updated = net(images)
    for name, conv in convs.items():
        net.set_submodule(name, conv.merged())
    assert_close(net(images), updated, rtol=1e-4, atol=1e-5)
    assert (updated[0] - before[0]).abs().max() > 0.01


@pytest.mark.parametrize(('frozen', 'targets'), [(2, ('qkv', 'proj')), (-1, 'all')])
def test_low_rank_update_alone_is_trained(build_vit, frozen, targets):
    vit = build_vit(lora=dict(rank=2, targets=targets), frozen_stages=frozen)
    vit(IMAGES)[0].square().sum().backward()
    for name, parameter in vit.named_parameters():
        trained = 'lora' in name and vit.layer_depth(name)[0] > frozen
        assert parameter.requires_grad == trained, name
        assert (parameter.grad is not None and bool(parameter.grad.any())) == trained
