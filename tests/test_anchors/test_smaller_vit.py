import pytest
import torch

from snnet_mm.anchors import contract_width, keep_blocks

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


def test_tokens_in_the_directions_are_mapped_as_by_the_wide_network(build_vit):
    """A network that never leaves the directions is contracted without a loss."""
    wide = build_vit(**VIT)
    ones = torch.ones(16, 1)
    basis = torch.linalg.qr(torch.cat([ones, torch.randn(16, 8)], dim=1))[0][:, 1:]
    # What has no mean, wide and narrow, so that both layer norms divide alike.
    inside = basis @ (torch.eye(8) - 1 / 8) @ basis.T
    with torch.no_grad():
        for name in ('pos_embed', 'cls_token'):
            getattr(wide, name).copy_(getattr(wide, name) @ inside)
        proj = wide.patch_embed.proj
        proj.weight.copy_(torch.einsum('oihw,od->dihw', proj.weight, inside))
        proj.bias.copy_(proj.bias @ inside)
        for block in wide.blocks:
            for layer, scale in (
                (block.attn.proj, block.ls1),
                (block.mlp.fc2, block.ls2),
            ):
                scale.gamma.fill_(0.7)
                layer.weight.copy_(inside @ layer.weight)
                layer.bias.copy_(inside @ layer.bias)
            # Two heads, and half of the hidden units, do nothing.
            block.attn.proj.weight[:, 4:12] = 0
            block.mlp.fc2.weight[:, 32:] = 0
    narrow = build_vit(**VIT | dict(embed_dims=8, num_heads=2))
    narrow.load_state_dict(contract_width(wide.state_dict(), basis, num_heads=4))
    images = torch.randn(2, 3, 16, 16)
    expected = torch.einsum('bchw,cd->bdhw', wide(images)[-1], basis)
    torch.testing.assert_close(narrow(images)[-1], expected, atol=1e-4, rtol=1e-4)
