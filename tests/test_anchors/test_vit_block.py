"""Drop path, windows as those of timm, adapters."""

import pytest
import torch
from timm.models.vision_transformer_sam import VisionTransformerSAM
from torch.testing import assert_close
from weights import load

from snnet_mm.anchors import PlainViT
from snnet_mm.anchors.vit_block import DropPath

WINDOWS = dict(
    cls_token=False, window_size=3, global_blocks=(1, 3), decomposed_rel_pos=True
)


def test_drop_path_dropped_branch_passes_input_on(build_vit):
    vit = build_vit(drop_path_rate=0.5)
    assert [block.drop_path.rate for block in vit.blocks] == [0, 0.25, 0.5]
    uniform = build_vit(drop_path_rate=0.5, drop_path_uniform=True)
    assert [block.drop_path.rate for block in uniform.blocks] == [0.5] * 3
    block, x = vit.blocks[-1], torch.randn(64, 17, 8)
    torch.manual_seed(3)
    y = block(x, (4, 4))
    torch.manual_seed(3)
    masks = torch.stack([torch.empty(64).bernoulli_(0.5) for _ in range(2)])
    attention, mlp = masks[..., None, None] * 2
    z = x + attention * block.ls1(block.attn(block.norm1(x), (4, 4)))
    assert_close(y, z + mlp * block.ls2(block.mlp(block.norm2(z))))
    assert DropPath(0.5).eval()(x) is x


@pytest.mark.parametrize(
    'img_size, window_size', [((56, 40), 3), ((48, 24), 3), ((56, 40), 9)]
)
def test_vit_block_windows_equal_timm(
    build_vit, randomise, tmp_path, img_size, window_size
):
    """On grids that windows fill or not, and in windows larger than the image."""
    sizes = dict(depth=4, num_heads=2, img_size=img_size, patch_size=8)
    sizes['window_size'] = window_size
    more = dict(num_classes=0, neck_chans=0, norm_layer=torch.nn.LayerNorm)
    more |= dict(use_rel_pos=True, global_attn_indexes=(1, 3), embed_dim=8)
    theirs = VisionTransformerSAM(**sizes, **more).eval()
    torch.save(randomise(theirs).state_dict(), tmp_path / 'sam.pth')
    args = WINDOWS | dict(layer_scale_init=None, norm_eps=1e-5, **sizes)
    ours = build_vit(out_indices=range(4), **args)
    load(ours, tmp_path / 'sam.pth', img_size=img_size)
    images = torch.randn(2, 3, *img_size)
    expected = theirs.forward_intermediates(images, intermediates_only=True)
    assert_close(ours(images), tuple(expected), atol=1e-5, rtol=1e-4)


def test_vit_block_loads_weights_of_vitdet(build_vit, tmp_path):
    """In Detectron2's names and layout, with an entry for a lost cls token."""
    source, vit = (build_vit(depth=4, img_size=32, **WINDOWS) for _ in range(2))
    state, pos_embed = source.state_dict(), source.pos_embed
    weights = {k.replace('rel_pos_bias.', ''): v for k, v in state.items()}
    weights['pos_embed'] = torch.cat([pos_embed[:, :1], pos_embed], dim=1)
    torch.save(dict(model=weights), tmp_path / 'vitdet.pth')
    load(vit, tmp_path / 'vitdet.pth')
    images = torch.randn(1, 3, 40, 32)
    assert_close(vit(images), source(images))


@pytest.mark.parametrize('parallel', [False, True])
def test_adapted_mlp_begins_at_zero_and_trains_alone(build_vit, tmp_path, parallel):
    """As the papers write them: behind the feed-forward branch, or beside it."""
    plain, images = build_vit(layer_scale_init=None), torch.randn(2, 3, 32, 32)
    torch.save(plain.state_dict(), tmp_path / 'vit.pth')
    arch = dict(embed_dims=8, depth=3, num_heads=2)
    adapter = dict(width=5, parallel=parallel)
    vit = PlainViT(arch, 32, 8, layer_scale_init=None, adapter=adapter)
    load(vit, tmp_path / 'vit.pth')
    assert_close(vit(images), plain(images))
    trained = {k for k, p in vit.named_parameters() if p.requires_grad}
    parts = [f'{part}.{name}' for part in ('down', 'up') for name in ('weight', 'bias')]
    assert trained == {f'blocks.{i}.mlp.adapter.{p}' for i in range(3) for p in parts}
    mlp, x = vit.blocks[0].mlp, torch.randn(2, 17, 8)
    torch.nn.init.normal_(mlp.adapter.up.weight)
    y, (down, _, up) = mlp.fc2(mlp.act(mlp.fc1(x))), mlp.adapter
    if parallel:
        assert_close(mlp(x), y + 0.1 * up(down(x).relu()))
    else:
        assert_close(mlp(x), y + up(torch.nn.functional.gelu(down(y))))
