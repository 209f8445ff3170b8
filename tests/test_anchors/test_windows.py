import pytest
import timm
import torch
from timm.models.vision_transformer_sam import VisionTransformerSAM
from weights import load

from snnet_mm.anchors import PlainViT
from snnet_mm.anchors.position import DecomposedRelPosBias, resize_offsets
from snnet_mm.anchors.windows import from_windows, to_windows

WINDOWS = dict(
    cls_token=False, window_size=3, global_blocks=(1, 3), decomposed_rel_pos=True
)


def test_windows_of_a_grid_that_they_do_not_fill():
    tokens = torch.arange(1.0, 16).view(1, 15, 1)  # 3 rows of 5
    windows = to_windows(tokens, (3, 5), 2)[..., 0]
    expected = [
        [1, 2, 6, 7],
        [3, 4, 8, 9],
        [5, 0, 10, 0],
        [11, 12, 0, 0],
        [13, 14, 0, 0],
        [15, 0, 0, 0],
    ]
    assert windows.tolist() == expected
    torch.testing.assert_close(from_windows(windows[..., None], (3, 5), 2), tokens)
    # Windows of several images follow one another.
    both = torch.cat([-tokens, tokens])
    assert to_windows(both, (3, 5), 2)[6:, :, 0].tolist() == expected
    assert from_windows(to_windows(both, (3, 5), 2), (3, 5), 2).equal(both)


def test_decomposed_bias_is_a_sum_over_row_and_column():
    bias = DecomposedRelPosBias((3, 4), head_dim=2)
    for embedding in bias.parameters():
        torch.nn.init.normal_(embedding)
    queries = torch.randn(2, 5, 12, 2)
    result = bias((3, 4), queries)
    assert result.shape == (2, 5, 12, 12)
    for query, key in ((0, 11), (7, 2), (5, 5)):
        (qy, qx), (ky, kx) = divmod(query, 4), divmod(key, 4)
        embedding = bias.rel_pos_h[qy - ky + 2] + bias.rel_pos_w[qx - kx + 3]
        torch.testing.assert_close(
            result[1, 4, query, key], queries[1, 4, query] @ embedding
        )


def sam(depth=4, img_size=(56, 40), **kwargs):
    """Timm's windowed ViT with decomposed positions, with weights that show."""
    kwargs = dict(window_size=3, global_attn_indexes=(1, 3)) | kwargs
    model = VisionTransformerSAM(
        img_size=img_size,
        patch_size=8,
        embed_dim=8,
        depth=depth,
        num_heads=2,
        use_rel_pos=True,
        neck_chans=0,
        num_classes=0,
        norm_layer=torch.nn.LayerNorm,
        **kwargs,
    ).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model


@pytest.mark.parametrize('img_size', [(56, 40), (48, 24), (8, 16)])
@pytest.mark.parametrize('window_size', [2, 3, 9])
def test_equal_to_timm(build_vit, tmp_path, img_size, window_size):
    """On grids that windows fill or not, and in windows larger than the image."""
    theirs = sam(img_size=img_size, window_size=window_size)
    torch.save(theirs.state_dict(), tmp_path / 'sam.pth')
    ours = build_vit(
        depth=4,
        img_size=img_size,
        layer_scale_init=None,
        norm_eps=1e-5,
        out_indices=range(4),
        **WINDOWS | dict(window_size=window_size),
    ).eval()
    load(ours, tmp_path / 'sam.pth', img_size=img_size)
    images = torch.randn(2, 3, *img_size)
    expected = theirs.forward_intermediates(images, intermediates_only=True)
    for got, wanted in zip(ours(images), expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)


def test_another_size_resamples_the_global_blocks_alone(build_vit):
    vit = build_vit(depth=4, img_size=(32, 24), **WINDOWS).eval()
    images = torch.randn(2, 3, 56, 40)
    (before,) = vit(images)
    own = {i: b.attn.rel_pos_bias.rel_pos_h.clone() for i, b in enumerate(vit.blocks)}
    vit.fix_input_size((56, 40))
    torch.testing.assert_close(vit(images)[0], before)
    for i, block in enumerate(vit.blocks):
        rel_pos_h = block.attn.rel_pos_bias.rel_pos_h
        if i in (0, 2):  # three rows of a window
            assert torch.equal(rel_pos_h, own[i])
            assert len(rel_pos_h) == 5
        else:
            torch.testing.assert_close(rel_pos_h, resize_offsets(own[i], 7))
            assert len(rel_pos_h) == 13


def test_offsets_between_old_ones_are_their_means():
    resized = resize_offsets(torch.tensor([[0.0], [6.0], [12.0]]), 5)
    # Nine entries over three: steps of a third, the ends repeated.
    expected = [0, 0, 2, 4, 6, 8, 10, 12, 12]
    torch.testing.assert_close(resized[:, 0], torch.tensor(expected).float())


def test_weights_of_vitdet_have_an_entry_for_a_cls_token_that_is_gone(
    build_vit, tmp_path
):
    """Detectron2's names and layout."""
    source = build_vit(depth=4, img_size=32, **WINDOWS)
    weights = {
        f'backbone.net.{k}'.replace('rel_pos_bias.', ''): v
        for k, v in source.state_dict().items()
    }
    pos_embed = weights['backbone.net.pos_embed']
    weights['backbone.net.pos_embed'] = torch.cat([pos_embed[:, :1], pos_embed], dim=1)
    torch.save(dict(model=weights), tmp_path / 'vitdet.pth')
    vit = build_vit(depth=4, img_size=32, **WINDOWS)
    load(vit, tmp_path / 'vitdet.pth', prefix='backbone.net')
    images = torch.randn(1, 3, 40, 32)
    torch.testing.assert_close(vit(images), source(images))


def test_deit3_weights_start_a_windowed_anchor(tmp_path):
    """What windows do not change is loaded; relative positions stay zero."""
    arch = dict(embed_dims=12, depth=2, num_heads=3)
    theirs = timm.create_model(
        'deit3_small_patch16_224', img_size=64, embed_dim=12, depth=2, num_heads=3
    )
    torch.save(theirs.state_dict(), tmp_path / 'deit3.pth')
    vit = PlainViT(
        arch,
        img_size=128,
        cls_token=False,
        window_size=4,
        global_blocks=(1,),
        decomposed_rel_pos=True,
    )
    load(vit, tmp_path / 'deit3.pth')
    assert vit.pos_embed.shape == (1, 64, 12)
    torch.testing.assert_close(
        vit.blocks[1].attn.qkv.weight, theirs.blocks[1].attn.qkv.weight
    )
    assert vit.blocks[0].attn.rel_pos_bias.rel_pos_h.count_nonzero() == 0
