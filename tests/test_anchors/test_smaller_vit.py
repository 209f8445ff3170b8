import pytest
import torch

from snnet_mm.anchors import keep_blocks

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
