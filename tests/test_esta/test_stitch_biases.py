"""Stitch-specific biases (ESTA, section 4.1): W x + b + b^s."""

import copy
from contextlib import suppress

import pytest
import torch
from torch.testing import assert_close
from toy_classifier import ToyClassifier

from snnet_mm.evaluation import cost_table, count_parameters
from snnet_mm.models import SandwichWrapper, SNNetv2, set_stitches
from snnet_mm.stitching import visiting_order

IMAGES = (2, 3, 16, 24)
BIASES = dict(stitch_biases=dict(type='StitchBiases'))
ANCHORS = {
    'cls': dict(),
    'lora': dict(lora=dict(rank=2)),
    'windows': dict(cls_token=False, window_size=2, global_blocks=(1,)),
}


def layers_of(net):
    """The layers that the active stitch gives biases to, in their order."""
    return [
        layer
        for a, begin, end in net.active_stitch.segments
        for block in net.anchors[a].blocks[begin:end]
        for layer in (block.attn.qkv, block.attn.proj)
    ]


def without(net):
    """A copy whose biases of stitches add nothing."""
    plain = copy.deepcopy(net)
    for biases in plain.stitch_biases.parameters():
        biases.data.zero_()
    return plain


def by_hand(net, stitch_id):
    """The same network without such biases; they are added to those of its layers."""
    plain = without(net)
    plain.set_stitch(stitch_id)
    layers = layers_of(plain)
    given = net.stitch_biases.get_parameter(str(stitch_id)).detach()
    widths = [layer.out_features for layer in layers]
    for layer, bias in zip(layers, given.split(widths), strict=True):
        layer.bias.data += bias
    return plain


@pytest.mark.parametrize('anchor', ANCHORS.values(), ids=ANCHORS)
def test_every_stitch_has_biases_of_its_own(build_snnet, anchor):
    net = build_snnet(anchor=anchor, plugins=BIASES, out_indices=(6, 0, 3)).eval()
    images = torch.randn(IMAGES)
    unbiased = without(net)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        unbiased.set_stitch(stitch.id)
        maps = net(images)
        wanted = by_hand(net, stitch.id)(images)
        for got, expected in zip(maps, wanted, strict=True):
            assert_close(got, expected, rtol=1e-4, atol=1e-4)
        assert (maps[0] - unbiased(images)[0]).abs().max() > 0.01


def test_they_begin_at_zero_and_are_for_the_blocks_that_run(build_vit):
    anchors = [build_vit(8, 2), build_vit(12, 4)]
    net = SNNetv2(anchors, stitching_layer=dict(type='StitchingLayer'), plugins=BIASES)
    sizes = {k: len(p) for k, p in net.stitch_biases.named_parameters()}
    # qkv and proj have 3 + 1 widths. Stitch 2 is fast[0:1] > slow[2:4], 4 the reverse.
    assert sizes == {'0': 4 * 2 * 8, '1': 4 * 4 * 12, '2': 128, '4': 128}
    assert net.space.describe(net.space[4]) == 'slow[0:2] > fast[1:2]'
    assert not any(p.any() for p in net.stitch_biases.parameters())
    plain = SNNetv2(anchors, stitching_layer=dict(type='StitchingLayer'))
    plain.load_state_dict(net.state_dict(), strict=False)
    images = torch.randn(IMAGES)
    for stitch in net.space:
        net.set_stitch(stitch.id)
        plain.set_stitch(stitch.id)
        assert torch.equal(net(images)[0], plain(images)[0])


def test_only_those_of_the_stitch_are_trained(build_snnet):
    net = build_snnet(plugins=BIASES)
    images = torch.randn(IMAGES)
    net.set_stitch(5)
    net(images)[0].square().sum().backward()
    parameters = net.stitch_biases.named_parameters()
    assert [k for k, p in parameters if p.grad is not None] == ['5']
    # Each is what a bias of the layer itself would get.
    plain = by_hand(net, 5)
    plain.zero_grad()
    plain(images)[0].square().sum().backward()
    wanted = [layer.bias.grad for layer in layers_of(plain)]
    got = net.stitch_biases.get_parameter('5').grad
    assert_close(got, torch.cat(wanted), rtol=1e-3, atol=1e-3)


def test_a_block_that_is_run_again_has_the_biases_of_its_stitch(build_snnet, randomise):
    """Both stitches have run when the blocks of the first are run again."""

    def build(**anchor):
        net = build_snnet(plugins=BIASES, anchor=anchor)
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
    biases = {k for k, g in grads[0].items() if 'stitch_biases' in k and g is not None}
    assert biases == {'backbone.stitch_biases.1', 'backbone.stitch_biases.5'}
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


def test_costs_are_those_of_the_stitch_with_biases_merged(build_snnet):
    biased, plain = build_snnet(plugins=BIASES), build_snnet()
    size = (16, 24)
    assert cost_table(biased, size).costs == cost_table(plain, size).costs
    counts = count_parameters(biased)
    assert list(counts) == ['anchors', 'stitching_layers', 'stitch_biases']
    assert counts['stitch_biases'].trained == sum(
        4 * (8, 12)[s.anchor] * (s.end - s.begin)
        for stitch in biased.space
        for s in stitch.segments
    )


def test_nothing_is_left_on_the_layers(build_snnet):
    """Not after a forward, nor one that fails: anchors by themselves have none."""
    net = build_snnet(plugins=BIASES)
    layer, seen = net.anchors[1].blocks[0].attn.qkv, []
    layer.register_forward_hook(lambda _, args, out: seen.append(out.dtype))
    with torch.autocast('cpu', torch.bfloat16):
        net(torch.randn(IMAGES))
    assert set(seen) == {torch.bfloat16}  # autocast stays what it is
    for images in (torch.randn(IMAGES), torch.randn(2, 5, 16, 24)):
        with suppress(RuntimeError):
            net(images)
        assert layer.stitch_bias is None
