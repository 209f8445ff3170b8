"""Biases (ESTA, section 4.1) and low-rank updates (figure 12) of every stitch."""

import copy

import pytest
import torch
from staged_anchors import convnext, disturb
from torch.testing import assert_close
from toy_classifier import ToyClassifier

from snnet_mm.models import SandwichWrapper, SNNetv1, SNNetv2, set_stitches
from snnet_mm.stitching import visiting_order

IMAGES = (2, 3, 16, 24)
BIASES = dict(stitch_biases=dict(type='StitchBiases'))
RANKS = 2, 3
LORA = dict(stitch_lora=dict(type='StitchLoRA', ranks=RANKS))
PLUGINS = pytest.mark.parametrize('plugins', [BIASES, LORA], ids=['biases', 'lora'])
ANCHORS = {
    'cls': dict(),
    'lora': dict(lora=dict(rank=2)),
    'windows': dict(cls_token=False, window_size=2, global_blocks=(1,)),
}


def added_to(net):
    """Anchors and layers that the active stitch adds to, in their order."""
    return [
        (a, layer)
        for a, begin, end in net.active_stitch.segments
        for block in net.anchors[a].blocks[begin:end]
        for layer in linear_of(block)
    ]


def linear_of(block):
    block = getattr(block, 'block', block)
    if hasattr(block, 'attn'):
        return block.attn.qkv, block.attn.proj
    return block.mlp.fc1, block.mlp.fc2


def plugin_of(net):
    (name,) = net.plugins
    return getattr(net, name)


def without(net):
    """A copy to whose layers stitches add nothing."""
    plain = copy.deepcopy(net)
    for added in plugin_of(plain).parameters():
        added.data.zero_()
    return plain


def by_hand(net, stitch_id):
    """The same network without the plug-in; its layers hold what a stitch adds."""
    plain = without(net)
    plain.set_stitch(stitch_id)
    given = plugin_of(net).get_parameter(str(stitch_id)).detach()
    for anchor, layer in added_to(plain):
        before, after, rank = layer.in_features, layer.out_features, RANKS[anchor]
        if 'stitch_biases' in net.plugins:
            layer.bias.data += given[:after]
            given = given[after:]
        else:
            down, up, given = given.tensor_split(
                (rank * before, rank * (before + after))
            )
            layer.weight.data += up.view(after, rank) @ down.view(rank, before)
    assert not len(given)
    return plain


@PLUGINS
@pytest.mark.parametrize('anchor', ANCHORS.values(), ids=ANCHORS)
def test_every_stitch_has_parameters_of_its_own(build_snnet, anchor, plugins):
    net = build_snnet(anchor=anchor, plugins=plugins, out_indices=(6, 0, 3)).eval()
    images = torch.randn(IMAGES)
    plain = without(net)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        plain.set_stitch(stitch.id)
        maps = net(images)
        wanted = by_hand(net, stitch.id)(images)
        for got, expected in zip(maps, wanted, strict=True):
            assert_close(got, expected, rtol=1e-4, atol=1e-4)
        assert (maps[0] - plain(images)[0]).abs().max() > 0.01


@PLUGINS
@pytest.mark.parametrize('with_cp', [False, True])
def test_convnext(plugins, with_cp):
    pytest.importorskip('timm')
    more = dict(lora=dict(rank=2), with_cp=with_cp)
    pair = [convnext(**more), convnext((12, 16, 20, 24), (2, 2, 4, 2), **more)]
    net = disturb(SNNetv1(pair, out='end', plugins=plugins)).eval()
    added = plugin_of(net).parameters()
    for parameter in added:
        parameter.data.mul_(0.1)
    # Blocks of widths 8, 12, 12, 16, 16, 16 and 20, whose MLPs are four times as wide.
    sizes = {'stitch_biases': 5 * 100, 'stitch_lora': 2 * 10 * 100}
    (name,) = plugins
    assert len(plugin_of(net).get_parameter('0')) == sizes[name]
    images, plain = torch.randn(2, 3, 64, 64), without(net)
    for stitch in net.space:
        net.set_stitch(stitch.id), plain.set_stitch(stitch.id)
        found, wanted = net(images).tokens, by_hand(net, stitch.id)(images).tokens
        assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        assert (found - plain(images).tokens).abs().max() > 0.01
    found.square().mean().backward()
    trained = [k for k, p in plugin_of(net).named_parameters() if p.grad is not None]
    assert trained == [str(stitch.id)]


# qkv and proj have 3 + 1 widths, and as many with one more each on their other sides.
# Stitch 2 is fast[0:1] > slow[2:4], 4 the reverse.
SIZES = {
    'biases': {'0': 4 * 2 * 8, '1': 4 * 4 * 12, '2': 128, '4': 128},
    'lora': {'0': 6 * 2 * 2 * 8, '1': 6 * 3 * 4 * 12, '2': 528, '4': 528},
}


@PLUGINS
def test_they_begin_at_zero_and_are_for_the_blocks_that_run(build_vit, plugins):
    anchors = [build_vit(8, 2), build_vit(12, 4)]
    net = SNNetv2(anchors, stitching_layer=dict(type='StitchingLayer'), plugins=plugins)
    sizes = {k: len(p) for k, p in plugin_of(net).named_parameters()}
    (name,) = plugins
    assert sizes == SIZES[name.removeprefix('stitch_')]
    assert net.space.describe(net.space[4]) == 'slow[0:2] > fast[1:2]'
    zeros = {'stitch_biases': 128, 'stitch_lora': 2 * 4 * 8 + 2 * 3 * 4 * 12}[name]
    assert int((plugin_of(net).get_parameter('2') == 0).sum()) == zeros
    plain = SNNetv2(anchors, stitching_layer=dict(type='StitchingLayer'))
    plain.load_state_dict(net.state_dict(), strict=False)
    images = torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        plain.set_stitch(stitch.id)
        assert torch.equal(net(images)[0], plain(images)[0])


@PLUGINS
def test_only_those_of_the_stitch_are_trained(build_snnet, plugins):
    net = build_snnet(plugins=plugins)
    images = torch.randn(IMAGES)
    net.set_stitch(5)
    net(images)[0].square().sum().backward()
    parameters = dict(plugin_of(net).named_parameters())
    assert [k for k, p in parameters.items() if p.grad is not None] == ['5']
    idle = plugin_of(net).idle_parameters(net.space[5])
    assert {id(p) for k, p in parameters.items() if k != '5'} == {id(p) for p in idle}
    if plugins is LORA:
        return
    # Each is what a bias of the layer itself would get.
    plain = by_hand(net, 5)
    plain.zero_grad()
    plain(images)[0].square().sum().backward()
    wanted = [layer.bias.grad for _, layer in added_to(plain)]
    got = net.stitch_biases.get_parameter('5').grad
    assert_close(got, torch.cat(wanted), rtol=1e-3, atol=1e-3)


@PLUGINS
def test_a_block_that_is_run_again_is_that_of_its_stitch(
    build_snnet, randomise, plugins
):
    """Both stitches have run when the blocks of the first are run again."""

    def build(**anchor):
        net = build_snnet(plugins=plugins, anchor=anchor)
        return SandwichWrapper(randomise(ToyClassifier(net)), 'hard', 0.5)

    kept, checkpointed = build(), build(with_cp=True)
    checkpointed.load_state_dict(kept.state_dict())
    data = torch.randn(4, 3, 32, 32), torch.tensor([0, 3, 1, 4])
    grads = []
    for model in (kept, checkpointed):
        set_stitches(model, (5, 1))
        losses = model(*data, mode='loss')
        sum(v for k, v in losses.items() if 'loss' in k).backward()
        grads.append({k: p.grad for k, p in model.named_parameters()})
    (name,) = plugins
    trained = {k for k, g in grads[0].items() if name in k and g is not None}
    assert trained == {f'backbone.{name}.1', f'backbone.{name}.5'}
    assert_close(grads[1], grads[0], rtol=1e-4, atol=1e-6)


def test_stitches_that_begin_alike_share_nothing(build_snnet):
    net = build_snnet(plugins=BIASES).eval()
    images = torch.randn(IMAGES)
    wanted = {}
    for stitch in net.space:
        net.set_stitch(stitch.id)
        wanted[stitch.id] = net(images)[0]
    with net.sharing_prefixes(), torch.no_grad():
        for stitch in visiting_order(net.space):
            net.set_stitch(stitch.id)
            assert torch.equal(net(images)[0], wanted[stitch.id])
