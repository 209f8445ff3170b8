"""Biases (ESTA, section 4.1) and low-rank updates (figure 12) of every stitch."""

import copy

import pytest
import torch
from staged_anchors import convnext, disturb
from torch.testing import assert_close

from snnet_mm.models import SNNetv1
from snnet_mm.stitching import visiting_order

IMAGES = (2, 3, 16, 24)
BIASES = dict(stitch_biases=dict(type='StitchBiases'))
RANKS = 2, 3
LORA = dict(stitch_lora=dict(type='StitchLoRA', ranks=RANKS))


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
            sizes = rank * before, rank * (before + after)
            down, up, given = given.tensor_split(sizes)
            layer.weight.data += up.view(after, rank) @ down.view(rank, before)
    assert not len(given)
    return plain


def check_every_stitch(net, images, output_of):
    """Compare stitches with networks by hand, and with one that adds nothing."""
    plain = without(net)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        plain.set_stitch(stitch.id)
        found, wanted = output_of(net(images)), by_hand(net, stitch.id)(images)
        assert_close(found, output_of(wanted), rtol=1e-4, atol=1e-4)
        assert (found - output_of(plain(images))).abs().max() > 0.01


@pytest.mark.parametrize(
    ('anchor', 'plugins'),
    [
        (dict(lora=dict(rank=2)), LORA),
        (dict(cls_token=False, window_size=2, global_blocks=(1,)), BIASES),
    ],
)
def test_stitch_parameters_are_own_of_every_stitch(build_snnet, anchor, plugins):
    sizes = dict(depths=(2, 4), out_indices=(3, 0, 2))
    net = build_snnet(anchor=anchor, plugins=plugins, **sizes).eval()
    check_every_stitch(net, torch.randn(IMAGES), torch.cat)


@pytest.mark.parametrize(('plugins', 'with_cp'), [(BIASES, True), (LORA, False)])
def test_stitch_parameters_of_convnext(plugins, with_cp):
    pytest.importorskip('timm')
    more = dict(lora=dict(rank=2), with_cp=with_cp)
    pair = [convnext(**more), convnext((12, 16, 20, 24), (2, 2, 4, 2), **more)]
    net = disturb(SNNetv1(pair, out='end', plugins=plugins)).eval()
    for parameter in plugin_of(net).parameters():
        parameter.data.mul_(0.1)
    # Blocks of widths 8, 12, 12, 16, 16, 16 and 20, whose MLPs are four times as wide.
    size = 5 * 100 if plugins is BIASES else 2 * 10 * 100
    assert len(plugin_of(net).get_parameter('0')) == size
    images = torch.randn(2, 3, 64, 64)
    check_every_stitch(net, images, lambda state: state.tokens)
    net(images).tokens.square().mean().backward()
    trained = [k for k, p in plugin_of(net).named_parameters() if p.grad is not None]
    assert trained == [str(net.active_stitch.id)]


@pytest.mark.parametrize('plugins', [BIASES, LORA], ids=['biases', 'lora'])
def test_stitch_parameters_of_active_stitch_alone_train(build_snnet, plugins):
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


def test_stitch_parameters_prefixes_are_not_shared(build_snnet):
    """Stitches that begin alike share nothing."""
    net = build_snnet(plugins=BIASES).eval()
    images, wanted = torch.randn(IMAGES), {}
    for stitch in net.space:
        net.set_stitch(stitch.id)
        wanted[stitch.id] = net(images)[0]
    with net.sharing_prefixes(), torch.no_grad():
        for stitch in visiting_order(net.space):
            net.set_stitch(stitch.id)
            assert torch.equal(net(images)[0], wanted[stitch.id])
