import pytest
import torch
from states import states_of, states_on_route

from snnet_mm.models import LeastSquares, SNNetv1, SNNetv2
from snnet_mm.models.stitching_init import fit_stitching_layers


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
def test_slow_to_fast_layers_are_fitted_to_the_faster_anchor(build_three):
    net, images = build_three(direction='SF'), torch.randn(12, 3, 32, 32)
    fit_stitching_layers(net, [images])
    states = []
    for anchor in net.anchors:
        start = {-1: anchor.embed(images)}
        states.append(start | dict(enumerate(states_of(anchor, images))))
    assert set(net.stitching_layers) == {
        f'{a}to{b}_{window}' for a, b in ((1, 0), (2, 1)) for window in range(3)
    }
    for name, layer in net.stitching_layers.items():
        slow, fast, window = int(name[0]), int(name[3]), int(name[5])
        fit = LeastSquares(layer.in_features, layer.out_features)
        fit.update(states[slow][window].tokens, states[fast][window - 1].tokens)
        expected = tuple(t.float() for t in fit.x_to_y())
        found = layer.weight, layer.bias
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


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


def test_unequal_depths_use_the_fast_to_slow_part_of_the_two_way_space(build_vit):
    net = SNNetv1([build_vit(8, 3), build_vit(12, 7)], out_indices=(2, 6))
    assert net.space.ids == (0, 1, 2, 3)
    assert [len(m.shape) for m in net(torch.randn(1, 3, 32, 32))] == [4, 4]


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


def test_unequal_depths_of_three_are_a_chain(build_three):
    net = build_three((2, 3, 4))
    assert net.space.ids == (0, 1, 2, 3, 6, 7)
    assert {s.kind for s in net.space} == {'anchor', 'FS'}
    back = build_three((2, 3, 4), direction='SF')
    assert back.space.ids == (0, 1, 2, 5, 9, 10)
    assert [s.kind for s in back.space][3:] == ['SF'] * 3
    assert set(back.stitching_layers) == {'1to0_0', '2to1_0', '2to1_1'}
    for stitch in back.space:
        back.set_stitch(stitch.id)
        width = (8, 12, 16)[stitch.end_anchor]
        assert back(torch.randn(1, 3, 32, 32)).tokens.shape == (1, 17, width)


@pytest.mark.parametrize(
    ('kwargs', 'message'),
    [
        (dict(direction='up'), "direction='up'; .*backbone.direction"),
        (dict(direction='FSF', depths=(2, 3, 4)), "direction='FSF'; .*'FS', 'SF'"),
        (
            dict(nearest=False, depths=(2, 3, 4)),
            r'nearest=False; allowed: .*\(2, 3, 4\)',
        ),
        (dict(stitch_ids=[33]), 'stitch id 33 .* 0-22 .*backbone.stitch_ids'),
    ],
)
def test_settings_that_cannot_be(build_three, kwargs, message):
    with pytest.raises(ValueError, match=message):
        build_three(**kwargs)
