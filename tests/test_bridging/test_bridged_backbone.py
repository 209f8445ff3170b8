import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from states import run, states_of

from snnet_mm.bridging import BridgedBackbone
from snnet_mm.deploy.single import single_stitch_config
from snnet_mm.evaluation import cost_table

pytest.importorskip('timm')

RESNET = dict(
    type='TimmStageAnchor',
    model='resnet50',
    model_args=dict(channels=(4, 6, 8, 10), stem_type='deep', stem_width=2),
    img_size=64,
)
SWIN = dict(
    type='TimmStageAnchor',
    model='swin_tiny_patch4_window7_224',
    model_args=dict(
        embed_dim=8, depths=(2, 2, 3, 2), num_heads=(1, 2, 2, 4), window_size=2
    ),
    img_size=64,
)
VIT = dict(
    type='PlainViT',
    arch=dict(embed_dims=12, depth=8, num_heads=2),
    img_size=64,
    patch_size=16,
)
BOTTLENECK = dict(type='BottleneckAdapter')


def build(fast, slow, stitching_layer=BOTTLENECK, **kwargs):
    torch.manual_seed(0)
    kwargs = dict(out='end') | kwargs
    net = BridgedBackbone([fast, slow], stitching_layer, **kwargs).eval()
    with torch.no_grad():
        for p in net.parameters():
            if p.ndim > 1:
                p.normal_(std=0.2)
    return net


@torch.no_grad()
def by_hand(net, images, i, j):
    fast, slow = net.anchors
    state = run(fast, fast.embed(images), 0, i)
    state = net.stitching_layers[f'0to1_{i}_{j}'](state)
    return run(slow, state, j)


@pytest.mark.parametrize(
    ('fast', 'slow', 'pair', 'joint', 'hops', 'grid'),
    [
        (RESNET, SWIN, (0, 3), (1, 8), [(16, 8), (32, 16), (64, 32)], (2, 2)),
        (RESNET, SWIN, (1, 1), (4, 4), [(16, 8)], (2, 2)),
        (SWIN, RESNET, (0, 1), (1, 4), [(24, 8)], (2, 2)),
        (RESNET, VIT, (1, 2), (4, 5), [(12, 16)], (4, 4)),
        (VIT, SWIN, (0, 2), (1, 5), [(16, 8), (32, 16)], (2, 2)),
        (VIT, VIT, (0, 3), (1, 7), [(12, 16)] * 3, (4, 4)),
        (RESNET, RESNET, (2, 1), (8, 4), [(24, 8)], (2, 2)),
    ],
)
@torch.no_grad()
def test_route_equals_one_composed_by_hand(fast, slow, pair, joint, hops, grid):
    net = build(fast, slow, stages=[pair])
    (name,) = net.stitching_layers
    layer = net.stitching_layers[name]
    assert name == '0to1_{}_{}'.format(*joint)
    assert [tuple(hop) for hop in layer.hops] == hops
    images = torch.randn(2, 3, 64, 64)
    out = net(images)
    assert net.active_stitch.id == 2
    assert out.grid == grid
    assert out.tokens.std() > 1e-3
    assert out.tokens.equal(by_hand(net, images, *joint).tokens)
    for a, anchor in enumerate(net.anchors):
        net.set_stitch(a)
        assert net(images).tokens.equal(states_of(anchor, images)[-1].tokens)


@torch.no_grad()
def test_a_grid_that_does_not_divide_is_the_one_of_the_slow_network():
    net = build(RESNET, SWIN, stages=[(0, 3)])
    images = torch.randn(1, 3, 100, 70)
    assert net(images).grid == states_of(net.anchors[1], images)[8].grid == (4, 3)


def test_chains_lead_through_the_first_blocks_of_stages():
    mobilenet = dict(type='TimmStageAnchor', model='mobilenetv3_large_100')
    with torch.device('meta'):
        net = BridgedBackbone(
            [RESNET, mobilenet], BOTTLENECK, stages=[(0, 3), (2, 2)], out='end'
        )
    found = {name: layer.hops for name, layer in net.stitching_layers.items()}
    # Stages of unequal widths: 80 to 112, and 160 to 960.
    assert found == {
        '0to1_1_12': ((40, 8), (80, 16), (160, 32)),
        '0to1_8_11': ((112, 16),),
    }


@torch.no_grad()
def test_maps_for_dense_heads():
    net = build(RESNET, SWIN, stages=[(0, 1)], out='maps', out_indices=(3, 6, 8))
    assert net.space.ids == (1, 2)
    images = torch.randn(1, 3, 64, 64)
    fast, slow = net.anchors
    state = fast.run_block(fast.embed(images), 0)
    state = net.stitching_layers['0to1_1_3'](state)
    for found, j in zip(net(images), (3, 6, 8), strict=True):
        assert found.equal(slow.to_feature_map(run(slow, state, 3, j + 1)))
    assert [m.shape[1:] for m in net(images)] == [(16, 8, 8), (32, 4, 4), (64, 2, 2)]
    costs = cost_table(net, (64, 64))
    assert set(costs) == {1, 2}


def test_a_step_trains_adapters_alone():
    fast = RESNET | dict(model_args=RESNET['model_args'] | dict(drop_path_rate=0.5))
    net = build(fast, VIT, stages=[(0, 2)]).train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5)
    net(torch.randn(2, 3, 64, 64)).tokens.square().mean().backward()
    optimizer.step()
    moved = {k for k, v in net.state_dict().items() if not v.equal(before[k])}
    # Running statistics of batch norms included.
    assert all(k.startswith('stitching_layers.') for k in moved)
    trained = {k for k, p in net.named_parameters() if p.requires_grad}
    assert trained <= moved
    assert any('running_mean' in k for k in moved)


@pytest.mark.parametrize(
    'layer',
    [
        BOTTLENECK,
        dict(type='Conv3x3Adapter', resize='strided'),
        dict(type='ViTBlockAdapter', head_dim=8),
    ],
)
def test_single_stitch_holds_the_route_alone(layer):
    anchors = [RESNET, SWIN]
    net = build(*anchors, layer, stages=[(0, 2), (0, 3)])
    model = dict(type='ImageClassifier', backbone=dict(anchors=anchors))
    cfg = Config(dict(model=model))
    plain = single_stitch_config(cfg, net, 3).model.backbone
    single = MODELS.build(plain).eval()
    state = net.state_dict()
    single.load_state_dict({k: state[k] for k in single.state_dict()})
    net.set_stitch(3)
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        assert single(images).tokens.equal(net(images).tokens)
    held = sum(p.numel() for p in single.parameters())
    assert cost_table(net, (64, 64))[3].params == held


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(), r'\(None, None\); allowed: one'),
        (dict(stages=[(0, 1)], joints=[(1, 3)]), 'allowed: one'),
        (
            dict(stages=[(0, 1)], stitching_layer=dict(type='StitchingLayer')),
            'a type of Adapter',
        ),
        (dict(stages=[(0, 1)], out='maps', out_indices=(2,)), '=2; .* 3 to 8'),
    ],
)
def test_what_cannot_be_built_is_refused(kwargs, message):
    with pytest.raises(ValueError, match=message):
        build(RESNET, SWIN, **kwargs)


def test_registers_are_not_bridged():
    registers = VIT | dict(num_registers=4)
    with pytest.raises(ValueError, match='1 cls token and 4 registers, and 0 and 0'):
        build(registers, SWIN, stages=[(0, 1)])
    with pytest.raises(ValueError, match='5 to 5 prefix tokens'):
        build(registers, registers, stages=[(0, 1)])
    linear = build(registers, registers, dict(type='LinearAdapter'), stages=[(0, 1)])
    assert linear(torch.randn(1, 3, 64, 64)).tokens.shape[1] == 16 + 5


def test_flops_of_table_1():
    resnet = dict(type='TimmStageAnchor', model='resnet50')
    with torch.device('meta'):
        net = BridgedBackbone(
            [resnet, resnet], BOTTLENECK, stages=[(0, 3), (0, 1)], out='end'
        )
    costs = cost_table(net, (224, 224))
    classifier = 2048 * 1000
    found = [(costs[i].flops + classifier) / 1e9 for i in (2, 3, 1)]
    assert found == pytest.approx([1.67, 3.58, 4.09], rel=0.03)
    assert found == pytest.approx([1.6743, 3.5754, 4.0892], rel=1e-4)
