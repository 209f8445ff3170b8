"""A network stitched to itself, against its branches and maps composed by hand."""

from copy import deepcopy

import pytest
import torch
import torch.nn.functional as F
from families import families
from mm_backbones import PLAIN as SEG_VIT
from mm_backbones import VIT as CLS_VIT
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from staged_anchors import disturb
from states import states_of

from snnet_mm.anchors import BranchView
from snnet_mm.costs import cost_table
from snnet_mm.exports import single_stitch
from snnet_mm.models import ElasticBackbone
from snnet_mm.models.backbones.walk import walk
from snnet_mm.stitching import Position, write_plan

VIT = dict(type='PlainViT', img_size=32, patch_size=8, final_norm=True)
VIT |= dict(arch=dict(embed_dims=8, depth=4, num_heads=2))
# Plans; with maps of blocks 1 and 3, by hand, each as what follows the embedding. The
# norm after the last block is step 8.
CHAINS = {
    '0:2/9': [[0, 'narrow1_1_9', 2, 3], [0, 'narrow1_1_9', *range(2, 9)]],
    # Consecutive narrow branches, and a gap before the norm.
    '0:1/5 1:1/3 3:2/0': [
        ['narrow2_0_1', 'narrow2_1_5', 'narrow2_2_1', 'narrow2_3_3'],
        [
            *('narrow2_0_1', 'narrow2_1_5', 'narrow2_2_1', 'narrow2_3_3'),
            *(4, 5, 6, 'skip2_7to8', 8),
        ],
    ],
    # Two gaps side by side, and the maps of both are read.
    '1:2/0 2:0/7 3:1/0': [
        [0, 1, 2, 'skip3_3to4'],
        [
            *(0, 1, 2, 'skip3_3to4', 'skip3_4to5', 'narrow3_5_7', 'narrow3_6_1'),
            *('skip3_7to8', 8),
        ],
    ],
    '0:0/0 1:0/0 2:0/0 3:0/0': [['skip4_0to4'], ['skip4_0to4', 'skip4_4to8', 8]],
}


@pytest.fixture
def build(randomise):
    def build(net=VIT, chains=(*CHAINS,), **kwargs):
        kwargs = dict(anchors=[net], chains=chains) | kwargs
        return shuffled(randomise(ElasticBackbone(**kwargs))).eval()

    return build


@torch.no_grad()
def shuffled(net):
    """Draw the orders of hidden units."""
    for order in net.unit_orders.values():
        order.index.copy_(torch.randperm(len(order.index)))
    return net


def attention(block, x, layer, heads):
    """Attention of some heads by hand, with the projection of a layer."""
    q, k, v = block.attn.qkv(block.norm1(x)).unflatten(-1, (3, 2, 4)).unbind(2)
    found = []
    for i in heads:
        scores = q[:, :, i] @ k[:, :, i].transpose(1, 2) / 4**0.5
        found.append(scores.softmax(-1) @ v[:, :, i])
    return x + torch.cat(found, -1) @ layer.weight.T + layer.bias


def mlp(block, x, layer, neurons):
    fc1 = block.mlp.fc1
    hidden = F.gelu(block.norm2(x) @ fc1.weight[neurons].T + fc1.bias[neurons])
    return x + hidden @ layer.weight.T + layer.bias


def by_hand(net, steps, images):
    (anchor,) = net.anchors
    state = anchor.embed(images)
    x, view = state.tokens, BranchView(anchor)
    for step in steps:
        if not isinstance(step, str):
            x = view.run_block(state._replace(tokens=x), step).tokens
            continue
        layer = net.stitching_layers[step]
        kind, first, units = step.split('_') if 'narrow' in step else ('skip', 0, 0)
        if kind == 'skip':
            x = x @ layer.weight.T + layer.bias
            continue
        kept = net.unit_orders[first].index[: int(units)].tolist()
        run = mlp if int(first) % 2 else attention
        x = run(anchor.blocks[int(first) // 2], x, layer, kept)
    return anchor.to_feature_map(state._replace(tokens=x))


@torch.no_grad()
@pytest.mark.parametrize('sharing', [False, True])
def test_chains_equal_branches_and_maps_one_after_the_other(build, sharing):
    net, images = build(out_indices=(1, -1)), torch.randn(2, 3, 32, 40)
    net.anchors[0].out_indices = (1, 3)
    wanted = {0: net.anchors[0](images)}
    for n, maps in enumerate(CHAINS.values(), start=1):
        wanted[n] = [by_hand(net, steps, images) for steps in maps]
    with net.sharing_prefixes():
        if not sharing:
            net._prefixes = None
        for n, maps in wanted.items():
            net.set_stitch(n)
            for found, by_us in zip(net(images), maps, strict=True):
                close = found.allclose(by_us, rtol=1e-4, atol=1e-5)
                assert torch.equal(found, by_us) if n == 0 else close


@torch.no_grad()
def test_chains_read_prefixes_of_one_order(build):
    """Also after the order, or weights that it sorts, have changed."""
    net, images = build(chains=['1:2/20', '1:2/10']), torch.randn(2, 3, 32, 32)
    assert list(net.unit_orders) == ['3']
    layer, short = (
        net.stitching_layers[f'narrow{n}_3_{k}'] for n, k in ((1, 20), (2, 10))
    )
    short.weight.copy_(layer.weight[:, :10])
    layer.weight[:, 10:] = 0
    short.bias.copy_(layer.bias)

    def outputs():
        found = []
        for stitch in (1, 2):
            net.set_stitch(stitch)
            found.append(net(images)[0])
        name = 'narrow1_3_20'
        wanted = by_hand(net, [0, 1, 2, name, *range(4, 9)], images)
        torch.testing.assert_close(found[0], wanted, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)
        return found[0]

    first = outputs()
    state = net.state_dict()
    state['unit_orders.3.index'] = net.unit_orders['3'].index.flip(0)
    net.load_state_dict(state)
    second = outputs()
    assert (second - first).abs().max() > 0.01
    net.anchors[0].blocks[1].mlp.fc1.weight.mul_(2)
    third = outputs()
    assert (third - second).abs().max() > 0.01
    net.anchors[0].blocks[1].mlp.fc1.weight.data.mul_(2)  # as averages of weights do
    net.eval()
    assert (outputs() - third).abs().max() > 0.01


@MODELS.register_module(force=True)
class Alone(BaseModel):
    """A model that is a backbone and nothing else."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = MODELS.build(backbone)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        return self.backbone(inputs)


def where_block_ends(net, block):
    """Return the tap of the last step of a route that belongs to a block."""
    here, found = Position(0, -1), None
    for step in net.space[1].steps:
        layer = step if isinstance(step, str) else None
        end = net.space.layers[step].target if layer else step
        if end.block >= 0 and net.view.units[end.block].block > block:
            break
        here = here if layer else step
        found = here, layer
    return found


def leaves(output):
    return torch.utils._pytree.tree_leaves(output)


# One for every kind of branch; slow tests run the others.
QUICK = 'PlainViT', 'mmseg.BEiT', 'mmseg.SwinTransformer', 'mmseg.ResNet'
QUICK += 'mmseg.MixVisionTransformer', 'mmpretrain.ConvNeXt'


# Blocks of one piece, some of layers alone.
CHAIN = dict(type='ChainAnchor', net=VIT, chain='0:2/9 1:0/5 2:1/0')


@torch.no_grad()
@pytest.mark.parametrize('anchor', [*families(QUICK), CHAIN])
def test_every_family_is_itself_at_stitch_0_and_small_as_one_stitch(anchor):
    pytest.importorskip('mmdet.models')
    pytest.importorskip('mmpretrain.models')
    view, plan = BranchView(MODELS.build(deepcopy(anchor))), []
    for i, width in enumerate(view.widths):
        skipped = i % 3 == 1 and i in view.skippable
        plan.append(0 if skipped else (width + 1) // 2 if i % 3 == 0 else width)
    blocks = [None if u.branch is None else u.block for u in view.units]
    chain = write_plan(tuple(plan), blocks)
    backbone = dict(type='ElasticBackbone', anchors=[anchor], chains=[chain])
    cfg = Config(dict(model=dict(type='Alone', backbone=backbone)))
    model = disturb(MODELS.build(deepcopy(cfg.model))).eval()
    net, images = shuffled(model.backbone), torch.randn(2, 3, 64, 64)
    whole = leaves(model(images))
    for found, wanted in zip(whole, leaves(net.anchors[0](images)), strict=True):
        assert torch.equal(found, wanted)
    cost = cost_table(net, (64, 64))[1]
    _, single = single_stitch(cfg, model, 1)
    for a, b, c in zip(
        leaves(single(images)), leaves(model(images)), whole, strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert not torch.equal(b, c)
    assert sum(p.numel() for p in single.parameters()) == cost.params
    anchor = single.backbone
    ends = {str(net.space.layers[k].target.block) for k in net.space[1].layers}
    assert {*anchor.layers.keys()} == ends
    taps = {i: where_block_ends(net, i) for i in range(anchor.depth)}
    steps = net.space[1].steps
    _, states = walk(net.runners, net.stitching_layers, steps, images, taps.values())
    for i, state in enumerate(states_of(anchor, images)):
        wanted = states[taps[i]].tokens
        torch.testing.assert_close(state.tokens, wanted, rtol=1e-4, atol=1e-5)
    _, same = single_stitch(cfg, model, 0)
    for a, b in zip(leaves(same(images)), whole, strict=True):
        assert torch.equal(a, b)


@torch.no_grad()
def test_a_stitch_alone_drops_kept_biases(randomise):
    """After changes that only averages of weights make, which no version counts."""
    anchor = VIT | dict(rel_pos_bias=True)
    backbone = dict(type='ElasticBackbone', anchors=[anchor], chains=['1:1/32'])
    cfg = Config(dict(model=dict(type='Alone', backbone=backbone)))
    model, images = randomise(MODELS.build(cfg.model)), torch.randn(2, 3, 32, 32)
    _, single = single_stitch(cfg, model.eval(), 1)
    (before,) = single(images)
    for block in single.backbone.net.blocks:
        block.attn.rel_pos_bias.table.data.mul_(5)
    single.eval()
    (found,), (wanted,) = single(images), deepcopy(single).train().eval()(images)
    assert torch.equal(found, wanted)
    assert (found - before).abs().max() > 0.01
    name = 'blocks.1.attn.rel_pos_bias.table'
    assert single.backbone.net.get_parameter(name).shape[1] == 1


@torch.no_grad()
def test_out_end_is_the_final_state_of_the_network(build):
    net, images = build(out='end'), torch.randn(2, 3, 32, 32)
    wanted = states_of(net.anchors[0], images)[-1].tokens
    assert torch.equal(net(images).tokens, wanted)


def test_blocks_that_lead_into_a_stage_stay(build):
    pytest.importorskip('mmseg.models')
    resnet = dict(type='mmseg.ResNet', depth=18, base_channels=4, stem_channels=4)
    net = dict(type='MMResNet', net=resnet)
    assert build(net, ['1:0 3:0']).space[1].layers == ('skip1_1to2', 'skip1_3to4')
    for chain, message in (
        ('0:0', r'all of blocks \[0\], which change'),
        ('1:0 2:0', r'all of blocks \[2\], which change'),
        ('1:2', r"chains\[0\]='1:2' is .*1:0 to 1 "),
    ):
        with pytest.raises(ValueError, match=message):
            build(net, [chain])


@pytest.mark.parametrize(
    'family, kind, net, number',
    [
        ('MMSegViT', 'mmseg', SEG_VIT, 0),
        ('MMSegViT', 'mmseg', SEG_VIT | dict(output_cls_token=True), 1),
        ('MMPretrainViT', 'mmpretrain', CLS_VIT, 1),
    ],
)
def test_prefix_tokens_in_outputs_have_their_own_map(build, family, kind, net, number):
    pytest.importorskip(kind)
    net = dict(net, type=f'{kind}.VisionTransformer')
    (layer,) = build(dict(type=family, net=net), ['1:0/0']).stitching_layers.values()
    assert layer.num_prefix == number


def test_a_checkpoint_of_another_plan_is_refused(build):
    """Of equal shapes; the record in the weights tells them apart."""
    one, other = (build(chains=[chain]) for chain in ('1:2/7', '2:2/7'))
    state = {
        k.replace('narrow1_3', 'narrow1_5').replace('orders.3', 'orders.5'): v
        for k, v in one.state_dict().items()
    }
    with pytest.raises(ValueError, match='Stitch 1 is .*narrow1_3_7.* in the weights'):
        other.load_state_dict(state)
