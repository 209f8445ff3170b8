from copy import deepcopy

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from staged_anchors import disturb, resnet, swin
from states import run, states_of

from snnet_mm.bridging import BridgedBackbone, BridgeSpace
from snnet_mm.bridging.bridged_backbone import joint_between, stages_to_bridge
from snnet_mm.costs import cost_table
from snnet_mm.exports.single import single_stitch_config
from snnet_mm.models import convert_batch_norms, set_statistics
from snnet_mm.stitching import Position

pytest.importorskip('timm')

RESNET = resnet('resnet50', (4, 6, 8, 10))
SWIN = swin(downsampling_blocks=True)  # of stages of 3, 3, 4 and 3 blocks
ARCH = dict(embed_dims=12, depth=8, num_heads=2)
VIT = dict(type='PlainViT', arch=ARCH, img_size=64, patch_size=16)
BOTTLENECK = dict(type='BottleneckAdapter')


def build(fast, slow, stitching_layer=BOTTLENECK, out='end', **kwargs):
    torch.manual_seed(0)
    net = BridgedBackbone([fast, slow], stitching_layer, out=out, **kwargs)
    return disturb(net).eval()


@pytest.mark.parametrize(
    ('fast', 'slow', 'pair', 'joint', 'hops', 'grid'),
    [
        (RESNET, SWIN, (0, 3), (1, 11), ((32, 8), (64, 16), (64, 32)), (2, 2)),
        # From the patch embedding.
        (SWIN, RESNET, (0, 1), (1, 4), ((24, 8),), (2, 2)),
        (RESNET, VIT, (1, 2), (4, 5), ((12, 16),), (4, 4)),
        # The cls token doubles the width before the first adapter.
        (VIT, SWIN, (0, 2), (1, 7), ((32, 16), (32, 16)), (2, 2)),
        (RESNET, RESNET, (2, 1), (8, 4), ((24, 8),), (2, 2)),
    ],
)
@torch.no_grad()
def test_bridged_backbone_route_equals_one_by_hand(fast, slow, pair, joint, hops, grid):
    net, images = build(fast, slow, stages=[pair]), torch.randn(2, 3, 64, 64)
    ((name, layer),) = net.stitching_layers.items()
    assert (name, layer.hops) == ('0to1_{}_{}'.format(*joint), hops)
    out, (first, second) = net(images), net.anchors
    assert (net.active_stitch.id, out.grid) == (2, grid)
    assert out.tokens.std() > 1e-3
    state = layer(run(first, first.embed(images), 0, joint[0]))
    assert out.tokens.equal(run(second, state, joint[1]).tokens)
    for a, anchor in enumerate(net.anchors):
        net.set_stitch(a)
        assert net(images).tokens.equal(states_of(anchor, images)[-1].tokens)


@torch.no_grad()
def test_bridged_backbone_undivided_grid_of_slow_network():
    """A grid that does not divide is the one of the slow network."""
    net, images = build(RESNET, SWIN, stages=[(0, 3)]), torch.randn(1, 3, 100, 70)
    assert net(images).grid == states_of(net.anchors[1], images)[12].grid == (4, 3)


@torch.no_grad()
def test_bridged_backbone_maps_for_dense_heads():
    net = build(RESNET, SWIN, stages=[(0, 1)], out='maps', out_indices=(5, 9, 12))
    images, (fast, slow) = torch.randn(1, 3, 64, 64), net.anchors
    state = fast.run_block(fast.embed(images), 0)
    state = net.stitching_layers['0to1_1_4'](state)
    for found, j in zip(net(images), (5, 9, 12), strict=True):
        assert found.equal(slow.to_feature_map(run(slow, state, 4, j + 1)))
    assert [m.shape[1:] for m in net(images)] == [(16, 8, 8), (32, 4, 4), (64, 2, 2)]
    assert set(cost_table(net, (64, 64))) == {1, 2}


@pytest.mark.parametrize(
    'kind', ['LinearAdapter', 'Conv3x3Adapter', 'BottleneckAdapter']
)
@torch.no_grad()
def test_bridged_backbone_norms_with_statistics_of_stitches(kind):
    """Norms of tokens, of maps and of networks compute as before."""
    net = build(RESNET, SWIN, dict(type=kind), stages=[(0, 3)])
    alone, images = deepcopy(net), torch.randn(2, 3, 64, 64)
    norms = convert_batch_norms(net)
    assert any('norm_in' in name for name in norms)
    for mode in (False, True):
        found, wanted = net.train(mode)(images), alone.train(mode)(images)
        assert found.tokens.equal(wanted.tokens)
    own = {n: 1.2 * torch.stack(norm.moments()) for n, norm in norms.items()}
    set_statistics(net, {2: own})
    for name, (mean, var) in own.items():
        norm = alone.get_submodule(name)
        norm.running_mean, norm.running_var = mean, var
    assert net.eval()(images).tokens.equal(alone.eval()(images).tokens)


@pytest.mark.parametrize('frozen_eval', [True, False])
def test_bridged_backbone_step_moves_adapters_and_statistics(frozen_eval):
    """Weights of anchors stay."""
    pair = RESNET | dict(drop_path_rate=0.5), SWIN
    net = build(*pair, stages=[(0, 2)], frozen_eval=frozen_eval).train()
    before = {k: v.clone() for k, v in net.state_dict().items()}
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1, weight_decay=0.5)
    net(torch.randn(2, 3, 64, 64)).tokens.square().mean().backward()
    optimizer.step()
    moved = {k for k, v in net.state_dict().items() if not v.equal(before[k])}
    of_anchors = {k for k in moved if k.startswith('anchors.')}
    # Running statistics of batch norms included.
    assert all(k.startswith('stitching_layers.') for k in moved - of_anchors)
    assert {k for k, p in net.named_parameters() if p.requires_grad} <= moved
    assert bool(of_anchors) is not frozen_eval
    assert all('running_' in k or 'num_batches' in k for k in of_anchors)
    # Of blocks that the route runs alone.
    run = 'anchors.0.stem.', 'anchors.0.blocks.0.'
    assert all(k.startswith(run) for k in of_anchors)


@pytest.mark.parametrize(
    'layer',
    [
        dict(type='Conv3x3Adapter', resize='strided', layout='code'),
        dict(type='ViTBlockAdapter', head_dim=8),
    ],
)
def test_bridged_backbone_single_stitch_holds_route_alone(layer):
    anchors, images = [RESNET, SWIN], torch.randn(1, 3, 64, 64)
    net = build(*anchors, layer, stages=[(0, 2), (0, 3)])
    cfg = Config(dict(model=dict(type='Held', backbone=dict(anchors=anchors))))
    held = torch.nn.ModuleDict(dict(backbone=net))
    net.set_stitch(3)
    plain = single_stitch_config(cfg, held).model.backbone
    single, state = MODELS.build(plain).eval(), net.state_dict()
    single.load_state_dict({k: state[k] for k in single.state_dict()})
    with torch.no_grad():
        assert single(images).tokens.equal(net(images).tokens)
    held = sum(p.numel() for p in single.parameters())
    assert cost_table(net, (64, 64))[3].params == held


def test_bridge_space_routes_are_the_pairs():
    space = BridgeSpace((16, 12), [(1, 11), (4, 5)])
    assert (space.ids, space.anchor_ids) == ((0, 1, 2, 3), (0, 1))
    assert space.describe(space[2]) == 'fast[0:1] > slow[11:12]'
    assert space.describe(space[3]) == 'fast[0:4] > slow[5:12]'
    assert space.layers['0to1_4_5'] == (Position(0, 3), Position(1, 4))
    assert BridgeSpace((16, 12), [(1, 11), (4, 5)], ids=[3]).ids == (0, 1, 3)
    with_maps = BridgeSpace((16, 12), [(1, 5), (4, 7)], maps=True)
    assert with_maps.ids == (1, 2, 3)
    assert with_maps.map_sources(7, 1) == ((Position(1, 7), None),)


FOUR = range(3), range(3, 7), range(7, 13), range(13, 16)
SHALLOW = range(2), range(2, 4), range(4, 10), range(10, 12)


def test_stages_to_bridge_and_joints_of_paper():
    assert stages_to_bridge(FOUR) == FOUR
    vit = stages_to_bridge([range(12)])
    assert vit == (range(3), range(3, 6), range(6, 9), range(9, 12))
    wanted = range(2), range(2, 4), range(4, 5), range(5, 6)
    assert stages_to_bridge([range(6)]) == wanted
    # After the first blocks; within a stage up to its end.
    joints = [joint_between(FOUR, SHALLOW, 0, y) for y in range(4)]
    assert joints == [(1, 2), (1, 3), (1, 5), (1, 11)]
    assert joint_between(FOUR, vit, 1, 3) == (4, 10)
    assert joint_between(FOUR, FOUR, 2, 2) == (8, 13)


def test_bridged_backbone_linear_adapters_map_registers():
    """Registers of both anchors go through linear adapters."""
    anchor, linear = VIT | dict(num_registers=4), dict(type='LinearAdapter')
    net = build(anchor, anchor, linear, stages=[(0, 1)])
    assert net(torch.randn(1, 3, 64, 64)).tokens.shape[1] == 16 + 5
