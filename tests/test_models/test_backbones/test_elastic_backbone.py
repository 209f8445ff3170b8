"""A network stitched to itself, against its branches and maps composed by hand."""

from copy import deepcopy

import pytest
import torch
from families import families
from mm_backbones import PLAIN as SEG_VIT
from mm_backbones import VIT as CLS_VIT
from mmengine.config import Config
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from small import small
from staged_anchors import disturb
from torch.nn import functional as F

from snnet_mm.anchors import BranchView
from snnet_mm.costs import cost_table
from snnet_mm.exports import single_stitch
from snnet_mm.models import ElasticBackbone
from snnet_mm.stitching import write_plan

VIT = small('vit', depth=4, final_norm=True)
# Plans; with the steps after the embedding up to the maps of blocks 1 and 3. The norm
# after the last block is step 8.
CHAINS = {
    '0:2/9': ('0 narrow1_1_9 2 3', '4 5 6 7 8'),
    # Consecutive narrow branches, and a gap before the norm.
    '0:1/5 1:1/3 3:2/0': (
        'narrow2_0_1 narrow2_1_5 narrow2_2_1 narrow2_3_3',
        '4 5 6 skip2_7to8 8',
    ),
    # Two gaps side by side, and the maps of both are read.
    '1:2/0 2:0/7 3:1/0': (
        '0 1 2 skip3_3to4',
        'skip3_4to5 narrow3_5_7 narrow3_6_1 skip3_7to8 8',
    ),
    '0:0/0 1:0/0 2:0/0 3:0/0': ('skip4_0to4', 'skip4_4to8 8'),
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


def hidden(net, branch, state):
    """Return what enters the output projection of a whole branch, by its units."""
    block, seen = net.anchors[0].blocks[branch // 2], []
    last = block.mlp.fc2 if branch % 2 else block.attn.proj
    handle = last.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    net.view.run_block(state, branch)
    handle.remove()
    return seen[0].unflatten(-1, (net.view.widths[branch], -1))


def by_hand(net, routes, images):
    """Yield the map after each part of a route."""
    (anchor,) = net.anchors
    state = anchor.embed(images)
    for route in routes:
        for step in route.split():
            if step.isdigit():
                state = net.view.run_block(state, int(step))
                continue
            x, layer = state.tokens, net.stitching_layers[step]
            if step.startswith('skip'):
                x = x @ layer.weight.T + layer.bias
            else:
                branch, units = map(int, step.split('_')[1:])
                kept = net.unit_orders[str(branch)].index[:units]
                h = hidden(net, branch, state)[:, :, kept].flatten(2)
                x = x + h @ layer.weight.T + layer.bias
            state = state._replace(tokens=x)
        yield anchor.to_feature_map(state)


@torch.no_grad()
@pytest.mark.parametrize('sharing', [False, True])
def test_elastic_backbone_chains_equal_branches_and_maps_in_turn(build, sharing):
    net, images = build(out_indices=(1, -1)), torch.randn(2, 3, 32, 40)
    net.anchors[0].out_indices = (1, 3)
    wanted = [net.anchors[0](images)]
    wanted += [by_hand(net, routes, images) for routes in CHAINS.values()]
    with net.sharing_prefixes():
        if not sharing:
            net._prefixes = None
        for n, maps in enumerate(wanted):
            net.set_stitch(n)
            for found, by_us in zip(net(images), maps, strict=True):
                close = found.allclose(by_us, rtol=1e-4, atol=1e-5)
                assert torch.equal(found, by_us) if n == 0 else close


@torch.no_grad()
def test_elastic_backbone_chains_read_prefixes_of_one_order(build):
    """Also after the order, or weights that it sorts, have changed."""
    net, images = build(chains=['1:2/20', '1:2/10']), torch.randn(2, 3, 32, 32)
    assert list(net.unit_orders) == ['3']
    layer, short = net.stitching_layers.values()
    short.weight.copy_(layer.weight[:, :10])
    layer.weight[:, 10:] = 0
    short.bias.copy_(layer.bias)
    order, neurons = net.unit_orders['3'].index, net.anchors[0].blocks[1].mlp.fc1
    changes = (
        lambda: None,
        lambda: order.copy_(order.flip(0)),
        lambda: neurons.weight.mul_(2),
        lambda: (neurons.weight.data.mul_(2), net.eval()),  # as averages of weights do
    )
    found = [torch.zeros(())]
    for change in changes:
        change()
        (wanted,) = by_hand(net, ['0 1 2 narrow1_3_20 4 5 6 7 8'], images)
        for stitch in (1, 2):
            net.set_stitch(stitch)
            (each,) = net(images)
            torch.testing.assert_close(each, wanted, rtol=1e-4, atol=1e-5)
        assert (each - found[-1]).abs().max() > 0.01
        found.append(each)


@MODELS.register_module(force=True)
class Alone(BaseModel):
    """A model that is a backbone and nothing else."""

    def __init__(self, backbone):
        super().__init__()
        self.backbone = MODELS.build(backbone)

    def forward(self, inputs, data_samples=None, mode='tensor'):
        return self.backbone(inputs)


def leaves(output):
    return torch.utils._pytree.tree_leaves(output)


# One for every kind of branch; slow tests run the others.
QUICK = 'PlainViT', 'mmseg.BEiT', 'mmseg.SwinTransformer', 'mmseg.ResNet'
QUICK += 'mmseg.MixVisionTransformer', 'mmpretrain.ConvNeXt'


# Blocks of one piece, some of layers alone.
CHAIN = dict(type='ChainAnchor', net=VIT, chain='0:2/9 1:0/5 2:1/0')


@torch.no_grad()
@pytest.mark.parametrize('anchor', [*families(QUICK), CHAIN])
def test_elastic_backbone_every_family_whole_and_exported(anchor):
    """Itself at stitch 0, and small as one stitch alone."""
    pytest.importorskip('mmdet.models')
    pytest.importorskip('mmpretrain.models')
    view, plan = BranchView(MODELS.build(deepcopy(anchor))), []
    for i, width in enumerate(view.widths):
        skipped = i % 3 == 1 and i in view.skippable
        plan.append(0 if skipped else (width + 1) // 2 if i % 3 == 0 else width)
    chain = write_plan(tuple(plan), view.blocks)
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
    ends = {str(net.space.layers[k].target.block) for k in net.space[1].layers}
    assert {*single.backbone.layers} == ends
    _, same = single_stitch(cfg, model, 0)
    for a, b in zip(leaves(same(images)), whole, strict=True):
        assert torch.equal(a, b)


@torch.no_grad()
def test_chain_anchor_drops_kept_biases(randomise):
    """After changes that only averages of weights make, which no version counts."""
    net = VIT | dict(rel_pos_bias=True)
    anchor = randomise(MODELS.build(CHAIN | dict(net=net, chain='1:1/32')))
    images = torch.randn(2, 3, 32, 32)
    (before,) = anchor.eval()(images)
    for block in anchor.net.blocks:
        block.attn.rel_pos_bias.table.data.mul_(5)
    (found,), (wanted,) = anchor.eval()(images), deepcopy(anchor).train().eval()(images)
    assert torch.equal(found, wanted)
    assert (found - before).abs().max() > 0.01


@pytest.mark.parametrize(
    'family, kind, net, number',
    [
        ('MMSegViT', 'mmseg', SEG_VIT, 0),
        ('MMSegViT', 'mmseg', SEG_VIT | dict(output_cls_token=True), 1),
        ('MMPretrainViT', 'mmpretrain', CLS_VIT, 1),
    ],
)
def test_elastic_backbone_prefix_tokens_have_their_own_map(
    build, family, kind, net, number
):
    """Where the outputs hold them."""
    pytest.importorskip(kind)
    net = dict(net, type=f'{kind}.VisionTransformer')
    (layer,) = build(dict(type=family, net=net), ['1:0/0']).stitching_layers.values()
    assert layer.num_prefix == number


def test_elastic_backbone_checkpoint_of_another_plan_is_refused(build):
    """Of equal shapes; the record in the weights tells them apart."""
    one, other = (build(chains=[chain]) for chain in ('1:2/7', '2:2/7'))
    state = {
        k.replace('narrow1_3', 'narrow1_5').replace('orders.3', 'orders.5'): v
        for k, v in one.state_dict().items()
    }
    with pytest.raises(ValueError, match='narrow1_3_7'):
        other.load_state_dict(state)


# But a BEiT of mmseg, which takes images of one size.
RESIZED = [f for f in families(QUICK) if not f.marks and f.id != 'mmseg.BEiT']
WITH_CLS = dict(SEG_VIT, type='mmseg.VisionTransformer', output_cls_token=True)
RESIZED.append(dict(type='MMSegViT', net=WITH_CLS))


@torch.no_grad()
@pytest.mark.parametrize('full_maps', [False, True])
@pytest.mark.parametrize('anchor', RESIZED)
def test_elastic_backbone_chain_of_smaller_images(anchor, full_maps):
    """The chain itself on resized images, and its maps as large as the network's."""
    pytest.importorskip('mmdet.models')
    pytest.importorskip('mmpretrain.models')
    view = BranchView(MODELS.build(deepcopy(anchor)))
    i = view.skippable[0] if isinstance(view.skippable, list) else min(view.skippable)
    plan = [0 if n == i else width for n, width in enumerate(view.widths)]
    chain = write_plan(tuple(plan), view.blocks)
    chains = [chain, f'0.5x: {chain}', '0.5x']
    kwargs = dict(anchors=[anchor], chains=chains, full_maps=full_maps)
    cfg = Config(
        dict(model=dict(type='Alone', backbone=dict(kwargs, type='ElasticBackbone')))
    )
    model = disturb(MODELS.build(deepcopy(cfg.model))).eval()
    net, images = model.backbone, torch.randn(2, 3, 128, 64)
    scales = [stitch.scale for stitch in net.space]
    assert scales == [1, 1, 0.5, 0.5]
    first, second = (net.space[n].layers for n in (1, 2))
    for name, source in zip(second, first, strict=True):
        weights = net.stitching_layers[source].state_dict()
        net.stitching_layers[name].load_state_dict(weights)
    small = F.interpolate(images, (64, 32), mode='bilinear', antialias=True)
    for stitch, same in ((2, 1), (3, 0)):
        net.set_stitch(0)
        sizes = [x.shape[-2:] for x in leaves(model(images))]
        net.set_stitch(same)
        wanted = leaves(model(small))
        net.set_stitch(stitch)
        found = leaves(model(images))
        for a, b, size in zip(found, wanted, sizes, strict=True):
            if full_maps and b.ndim == 4:
                b = F.interpolate(b, size, mode='bilinear')
            assert torch.equal(a, b)
        _, single = single_stitch(cfg, model, stitch)
        for a, b in zip(leaves(single(images)), found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_elastic_backbone_checkpoint_of_another_scale_is_refused(build):
    one, other = (build(chains=[chain]) for chain in ('0.5x: 1:2/7', '0.6x: 1:2/7'))
    with pytest.raises(ValueError, match=r"\['narrow1_3_7'\], 0.5\] in the weights"):
        other.load_state_dict(one.state_dict())
