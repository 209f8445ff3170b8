import pytest
from mmengine.optim import build_optim_wrapper
from small import small
from torch import nn

from snnet_mm.models import ChainAnchor

LR, WD = 2e-3, 0.1
RATES = (0.5, 0.8)


def build(model, rates=RATES, **kwargs):
    return build_optim_wrapper(
        model,
        dict(
            type='OptimWrapper',
            optimizer=dict(type='AdamW', lr=LR, weight_decay=WD),
            constructor='AnchorLayerDecayConstructor',
            paramwise_cfg=dict(decay_rates=rates) | kwargs,
        ),
    )


def settings_of(wrapper, model):
    """Share of the learning rate, and weight decay, of every parameter by name."""
    names = {p: name for name, p in model.named_parameters()}
    return {
        names[p]: (pytest.approx(group['lr'] / LR), group['weight_decay'])
        for group in wrapper.optimizer.param_groups
        for p in group['params']
    }


@pytest.fixture
def model(build_snnet):
    """Anchors of 3 and 7 blocks, a head, and everything else a parameter can be in."""
    anchor = dict(num_registers=1, rel_pos_bias=True, final_norm=True)
    backbone = build_snnet(anchor=anchor)
    return nn.ModuleDict(dict(backbone=backbone, head=nn.Conv2d(12, 2, 1)))


def test_layer_decay_rates_and_decay_by_value(model):
    found = settings_of(build(model), model)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    assert sorted(found) == sorted(trained)
    layer = 'backbone.stitching_layers.0to1_0.'
    expected = {
        f'{layer}bias': (1, 0),
        f'{layer}lora_A': (1, WD),
        f'{layer}lora_B': (1, WD),
        'head.weight': (1, WD),
        'head.bias': (1, 0),
    }
    for a, (rate, depth) in enumerate(zip(RATES, (3, 7), strict=True)):
        at = f'backbone.anchors.{a}.'
        embedding, last = rate ** (depth + 1), f'{at}blocks.{depth - 1}.'
        expected |= {
            f'{at}patch_embed.proj.weight': (embedding, WD),
            f'{at}patch_embed.proj.bias': (embedding, 0),
            f'{at}pos_embed': (embedding, 0),
            f'{at}cls_token': (embedding, 0),
            f'{at}reg_token': (embedding, 0),
            f'{at}blocks.0.attn.qkv.weight': (rate**depth, WD),
            f'{at}blocks.0.attn.qkv.bias': (rate**depth, 0),
            f'{at}blocks.0.attn.rel_pos_bias.table': (rate**depth, 0),
            f'{at}blocks.1.norm1.weight': (rate ** (depth - 1), 0),
            f'{at}blocks.1.ls1.gamma': (rate ** (depth - 1), 0),
            f'{last}mlp.fc2.weight': (rate, WD),
            f'{at}norm.weight': (1, 0),
        }
    assert {name: found[name] for name in expected} == expected
    # Equal settings share a group, and logs show the first, the full rate.
    groups = build(model, (0.5, 0.5)).optimizer.param_groups
    keys = [(group['lr'], group['weight_decay']) for group in groups]
    assert keys == [(LR / 2**i, wd) for i in range(9) for wd in (WD, 0)]


def test_layer_decay_chain_is_as_its_network():
    """Once, though the chain and its network are both anchors."""
    net = small('vit', depth=3)
    model = nn.ModuleDict(dict(backbone=ChainAnchor(net, '0:1/0 1:0/9 2:2/0')))
    found, rate = settings_of(build(model, 0.5), model), 0.5
    expected = {
        'backbone.net.patch_embed.proj.weight': (rate**4, WD),
        'backbone.net.blocks.0.attn.qkv.weight': (rate**3, WD),
        'backbone.layers.0.weight': (rate**3, WD),  # heads of block 0
        'backbone.layers.2.weight': (rate**2, WD),  # a gap that ends in block 1
        'backbone.layers.3.bias': (rate**2, 0),
        'backbone.net.blocks.2.attn.qkv.weight': (rate, WD),
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize('wrapped', [False, True])
def test_layer_decay_lr_mults_scale_parts(model, wrapped):
    mults = {'backbone.anchors': 0.1, 'backbone.anchors.1': 3, 'head': 0}
    whole = nn.ModuleDict(dict(student=model)) if wrapped else model
    found = settings_of(build(whole, (1, 0.8), lr_mults=mults), model)
    fast, slow = (f'backbone.anchors.{a}.' for a in (0, 1))
    expected = {
        f'{fast}patch_embed.proj.weight': (0.1, WD),
        f'{fast}blocks.2.norm1.bias': (0.1, 0),
        f'{slow}blocks.0.attn.qkv.weight': (0.3 * 0.8**7, WD),
        'backbone.stitching_layers.0to1_0.lora_A': (1, WD),
        'head.weight': (0, WD),
        'head.bias': (0, 0),
    }
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ('settings', 'key'),
    [
        (dict(rates=(0.7,)), 'decay_rates'),
        (dict(rates=2), 'decay_rates'),
        (dict(lr_mults=dict(neck=1)), "'neck'.*lr_mults"),
        (dict(layers=2), 'paramwise_cfg'),
    ],
)
def test_layer_decay_wrong_rates_and_parts_are_refused(model, settings, key):
    with pytest.raises(ValueError, match=key):
        build(model, **settings)
