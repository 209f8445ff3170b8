import pytest
import torch
from states import states_on_route

from snnet_mm.models import SNNetv1, SNNetv2, fit_stitching_layers


@pytest.fixture
def build_three(build_vit, randomise):
    """Builds an SN-Netv1 of three anchors of equal depth."""

    def build(depths=(4, 4, 4), **kwargs):
        widths = (8, 12, 16)
        anchors = [build_vit(*size) for size in zip(widths, depths, strict=True)]
        return randomise(SNNetv1(anchors, out='end', **kwargs)).eval()

    return build


@torch.no_grad()
@pytest.mark.parametrize('direction', ['FS', 'SF'])
def test_every_route_equals_its_blocks_by_hand(build_three, direction):
    images = torch.randn(2, 3, 32, 32)
    three = build_three(nearest=False, direction=direction)
    assert len(three.space) == 3 + 3 * 10 + 63
    for stitch in three.space:
        three.set_stitch(stitch.id)
        *_, end = states_on_route(three, stitch, images).values()
        assert three(images).tokens.equal(end.tokens)


@torch.no_grad()
def test_a_route_into_block_0_is_fitted_to_the_embedding(build_vit):
    # With equal embeddings up to a linear map, the fit is exact.
    fast, slow = build_vit(8, 2), build_vit(8, 2)
    slow.load_state_dict(fast.state_dict())
    torch.nn.init.zeros_(fast.blocks[0].attn.proj.weight)
    torch.nn.init.zeros_(fast.blocks[0].attn.proj.bias)
    torch.nn.init.zeros_(fast.blocks[0].mlp.fc2.weight)
    torch.nn.init.zeros_(fast.blocks[0].mlp.fc2.bias)
    net = SNNetv1([fast, slow], out='end').eval()
    fit_stitching_layers(net, [torch.randn(4, 3, 32, 32)])
    # Block 0 of the fast anchor is the identity now: the layer maps it to the slow
    # anchor's embedding, which is the same.
    layer = net.stitching_layers['0to1_0']
    torch.testing.assert_close(layer.weight, torch.eye(8), rtol=0, atol=1e-4)
    torch.testing.assert_close(layer.bias, torch.zeros(8), rtol=0, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize('depths', [(3, 7), (2, 3, 7)])
@pytest.mark.parametrize('direction', ['FS', 'SF'])
def test_either_direction_is_a_part_of_two_ways(
    build_vit, randomise, depths, direction
):
    anchors = [build_vit(*s) for s in zip((8, 12, 16), depths, strict=False)]
    settings = dict(stitching_layer=dict(type='StitchingLayer'), out_indices=(0, 3, 6))
    two_way = randomise(SNNetv2(anchors, **settings)).eval()
    net = SNNetv1(anchors, direction=direction, **settings).eval()
    net.load_state_dict({k: two_way.state_dict()[k] for k in net.state_dict()})
    images = torch.randn(1, 3, 32, 32)
    kinds = {'anchor', direction}
    assert net.space.ids == tuple(s.id for s in two_way.space if s.kind in kinds)
    for stitch_id in net.space.ids:
        net.set_stitch(stitch_id)
        two_way.set_stitch(stitch_id)
        for a, b in zip(net(images), two_way(images), strict=True):
            assert a.shape == (1, 8 + 4 * (len(depths) - 1), 4, 4)
            assert a.equal(b)


def test_sliding_windows_refuse_dense_maps(build_vit):
    with pytest.raises(ValueError, match="out='maps'; allowed: 'end'"):
        SNNetv1([build_vit(8, 3), build_vit(12, 3)])


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(direction='up'), "direction='up'; .*backbone.direction"),
        (dict(direction='FSF', depths=(2, 3, 4)), "direction='FSF'; .*'FS', 'SF'"),
        (dict(nearest=False, depths=(2, 3, 4)), r'nearest=False; .*\(2, 3, 4\)'),
        (dict(stitch_ids=[33]), 'stitch id 33 .* 0-22 .*backbone.stitch_ids'),
    ],
)
def test_settings_that_cannot_be(build_three, kwargs, message):
    with pytest.raises(ValueError, match=message):
        build_three(**kwargs)
