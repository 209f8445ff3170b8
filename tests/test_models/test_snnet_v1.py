import pytest
import torch

from snnet_mm.models import SNNetv1
from snnet_mm.models.stitching_init import fit_stitching_layers


@pytest.fixture
def three(build_vit, randomise):
    anchors = [build_vit(width, 4) for width in (8, 12, 16)]
    return randomise(SNNetv1(anchors, nearest=False, out='end')).eval()


@torch.no_grad()
def test_every_route_equals_its_blocks_by_hand(three):
    images = torch.randn(2, 3, 32, 32)
    assert len(three.space) == 3 + 3 * 10 + 63
    for stitch in three.space:
        three.set_stitch(stitch.id)
        first, *others = stitch.segments
        state = three.anchors[first.anchor].embed(images)
        x, grid = state.tokens, state.grid
        for i in range(first.begin, first.end):
            x = three.anchors[first.anchor].blocks[i](x, grid)
        for name, segment in zip(stitch.layers, others, strict=True):
            x = three.stitching_layers[name](x)
            for i in range(segment.begin, segment.end):
                x = three.anchors[segment.anchor].blocks[i](x, grid)
        assert three(images).tokens.equal(x)


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


def test_sliding_windows_refuse_dense_maps(build_vit):
    with pytest.raises(ValueError, match="out='end'"):
        SNNetv1([build_vit(8, 3), build_vit(12, 3)])
