"""Blocks of a chain's own, against a network that has them in place of its own."""

import copy

import pytest
import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from staged_anchors import convnext
from torch.testing import assert_close
from torch.utils._pytree import tree_leaves

from snnet_mm.exports import single_stitch
from snnet_mm.models import ElasticBackbone, PartPerChain, set_stitch

VIT = dict(type='PlainViT', img_size=32, patch_size=8)
VIT |= dict(arch=dict(embed_dims=8, depth=6, num_heads=2))
SWIN = dict(embed_dims=8, depths=(2, 4), num_heads=(1, 2), strides=(4, 2))
SWIN |= dict(type='mmseg.SwinTransformer', window_size=2, out_indices=(0, 1))
NETWORKS = {
    'vit': (VIT, [(0, 1, 2, 5), (0, 5), (0,)]),
    'checkpointed': (VIT | dict(with_cp=True), [(0, 1, 2, 5), (0, 5)]),
    'swin': (dict(type='MMSwin', net=SWIN), [(0, 1, 2, 3, 5), (0, 2, 4)]),
    'convnext': (convnext(), [(0, 1, 3, 4, 5, 6), (0, 1, 3, 4, 6)]),
}


LORA = VIT | dict(lora=dict(rank=2))


@pytest.fixture
def build(randomise):
    def build(name, stitches=(2,)):
        pytest.importorskip('mmseg.models')
        net, chains = NETWORKS[name]
        own = dict(type='ChainBlocks', stitches=stitches)
        return randomise(
            ElasticBackbone([net], chains, plugins=dict(chain_blocks=own))
        ).eval()

    return build


def maps_of(net, stitch_id, images):
    net.set_stitch(stitch_id)
    return [t for t in tree_leaves(net(images)) if isinstance(t, torch.Tensor)]


@pytest.mark.parametrize('name', [*NETWORKS])
def test_a_chain_runs_its_blocks_and_the_others_those_of_the_network(build, name):
    net, images = build(name), torch.randn(2, 3, 32, 32)
    (anchor,) = net.anchors
    other = copy.deepcopy(net)  # whose network has the blocks of the chain
    for number, block in other.chain_blocks.get_submodule('2').items():
        other.anchors[0].set_submodule(anchor.block_path(int(number)), block)
    other.chain_blocks.active = False
    plain = copy.deepcopy(net)
    plain.chain_blocks.active = False
    with torch.no_grad():
        for i in net.space.ids:
            assert_close(
                maps_of(net, i, images), maps_of(other if i == 2 else plain, i, images)
            )
            same = map(torch.equal, maps_of(net, i, images), maps_of(other, i, images))
            assert all(same) == (i == 2)
    net.chain_blocks.copy_network()
    assert_close(maps_of(net, 2, images), maps_of(plain, 2, images))


@torch.no_grad()
@pytest.mark.parametrize('net', [VIT, LORA])
def test_an_exported_chain_has_its_blocks(randomise, net):
    pytest.importorskip('mmseg.models')
    head = dict(type='FCNHead', in_channels=8, channels=4, num_classes=3)
    head |= dict(num_convs=1, norm_cfg=None, in_index=0)
    own = dict(chain_blocks=dict(type='ChainBlocks', stitches=[2]))
    backbone = dict(type='ElasticBackbone', anchors=[net], plugins=own)
    backbone |= dict(chains=[(0, 1, 2, 5), (0, 5)])
    model = dict(type='EncoderDecoder', backbone=backbone, decode_head=head)
    cfg = Config(dict(model=model, default_scope='mmseg'))
    built = randomise(MODELS.build(dict(cfg.model, _scope_='mmseg'))).eval()
    images, found = torch.randn(1, 3, 32, 32), []
    for i in (1, 2):
        set_stitch(built, i)
        _, single = single_stitch(cfg, built, i)
        found.append(single._forward(images))
        assert_close(found[-1], built._forward(images))
    assert not torch.equal(*found)


def test_forwards_that_overlap_leave_the_network_as_it_is(build):
    net = build('vit')
    (anchor,) = net.anchors
    blocks = [*anchor.blocks]
    for i in (2, 2):
        net.set_stitch(i)
        net.chain_blocks._before_forward(net)
    for _ in range(2):
        net.chain_blocks._after_forward()
    assert [*anchor.blocks] == blocks


@pytest.mark.parametrize('name', ['vit', 'checkpointed'])
def test_gradients_are_those_of_the_blocks_that_ran(build, name):
    net, images = build(name), torch.randn(2, 3, 32, 32)
    net.train()
    (out,) = maps_of(net, 2, images)
    net.set_stitch(0)
    net(images)  # before a block runs again for its gradient
    out.square().sum().backward()
    blocks = [p for n, p in net.named_parameters() if 'anchors.0.blocks.' in n]
    assert not any(p.grad is not None and p.grad.any() for p in blocks)
    own = [*net.chain_blocks.parameters()]
    assert own
    assert all(p.grad is not None and p.grad.any() for p in own)
    assert {*net.chain_blocks.idle_parameters(net.space[1])} == {*own}
    assert not net.chain_blocks.idle_parameters(net.space[2])


@pytest.mark.parametrize('stitches', [[0], [4], [1, 1]])
def test_stitches_that_are_no_chains(build, stitches):
    with pytest.raises(ValueError, match='chains.*plugins.stitches'):
        build('vit', stitches)


def test_every_chain_has_a_part_of_its_group(build):
    net, part = build('vit'), dict(type='Conv2d', in_channels=8, out_channels=2)
    part |= dict(kernel_size=1)
    head = PartPerChain([part] * 3, [[1, 3], [2]])
    head.check_space(net.space)
    for i, place in enumerate([0, 1, 2, 1]):
        head.on_stitch(net.space[i])
        assert head.active is head.parts[place]
        idle = {*head.idle_parameters(net.space[i])}
        assert idle == {*head.parameters()} - {*head.parts[place].parameters()}
    head.copy_network()
    for other in head.parts[1:]:
        assert torch.equal(other.weight, head.parts[0].weight)
    with pytest.raises(ValueError, match=r'all of \[1, 2, 3\]'):
        PartPerChain([part] * 2, [[1, 3]]).check_space(net.space)
    for chains in ([[1]], [[1], [1]], [[1], [2], [3]]):
        with pytest.raises(ValueError, match='each of 2 parts'):
            PartPerChain([part] * 3, chains)
