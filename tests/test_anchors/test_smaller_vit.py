import pytest
import torch

from snnet_mm.anchors import keep_blocks, map_embedding

VIT = dict(embed_dims=16, depth=4, num_heads=4, img_size=16, layer_scale_init=0.5)


@pytest.mark.parametrize('blocks', [[0, 2], [1, 2, 3], [3]])
def test_a_network_of_some_blocks_runs_these_one_after_the_other(build_vit, blocks):
    wide, short = build_vit(**VIT), build_vit(**VIT | dict(depth=len(blocks)))
    short.load_state_dict(keep_blocks(wide.state_dict(), blocks))
    images = torch.randn(2, 3, 16, 16)
    state = wide.embed(images)
    for i in blocks:
        state = wide.run_block(state, i)
    torch.testing.assert_close(short(images)[-1], wide.to_feature_map(state))


@pytest.mark.parametrize('covered', [False, True])
def test_an_affine_map_after_the_embedding_needs_no_layer(build_vit, covered):
    settings = VIT | dict(num_registers=2, pos_embed_prefix=covered, img_size=32)
    vit, mapped = build_vit(**settings), build_vit(**settings)
    weight, bias = torch.randn(16, 16), torch.randn(16)
    mapped.load_state_dict(map_embedding(vit.state_dict(), weight, bias))
    for size in (32, 48):
        images = torch.randn(2, 3, size, size)
        found, plain = mapped.embed(images).tokens, vit.embed(images).tokens
        expected = plain @ weight.T + bias
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
