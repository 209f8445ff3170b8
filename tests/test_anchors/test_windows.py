import pytest
import torch
from timm.models.vision_transformer_sam import VisionTransformerSAM
from weights import load

from snnet_mm.anchors.position import DecomposedRelPosBias, resize_offsets
from snnet_mm.anchors.windows import from_windows, to_windows

WINDOWS = dict(
    cls_token=False, window_size=3, global_blocks=(1, 3), decomposed_rel_pos=True
)


def test_windows_of_a_grid_that_they_do_not_fill():
    tokens = torch.arange(1.0, 16).view(1, 15, 1)  # 3 rows of 5
    windows = to_windows(tokens, (3, 5), 2)[..., 0]
    expected = [[1, 2, 6, 7], [3, 4, 8, 9], [5, 0, 10, 0]]
    expected += [[11, 12, 0, 0], [13, 14, 0, 0], [15, 0, 0, 0]]
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


@pytest.mark.parametrize('img_size', [(56, 40), (48, 24)])
@pytest.mark.parametrize('window_size', [3, 9])
def test_equal_to_timm(build_vit, randomise, tmp_path, img_size, window_size):
    """On grids that windows fill or not, and in windows larger than the image."""
    sizes = dict(depth=4, num_heads=2, img_size=img_size, patch_size=8)
    more = dict(num_classes=0, neck_chans=0, norm_layer=torch.nn.LayerNorm)
    more |= dict(use_rel_pos=True, global_attn_indexes=(1, 3), embed_dim=8)
    theirs = VisionTransformerSAM(window_size=window_size, **sizes, **more).eval()
    randomise(theirs)
    torch.save(theirs.state_dict(), tmp_path / 'sam.pth')
    args = WINDOWS | dict(window_size=window_size, layer_scale_init=None)
    ours = build_vit(norm_eps=1e-5, out_indices=range(4), **sizes, **args)
    load(ours, tmp_path / 'sam.pth', img_size=img_size)
    images = torch.randn(2, 3, *img_size)
    expected = theirs.forward_intermediates(images, intermediates_only=True)
    for got, wanted in zip(ours(images), expected, strict=True):
        torch.testing.assert_close(got, wanted, atol=1e-5, rtol=1e-4)


def test_another_size_resamples_the_global_blocks_alone(build_vit):
    vit = build_vit(depth=4, img_size=(32, 24), **WINDOWS).eval()
    images = torch.randn(2, 3, 56, 40)
    (before,) = vit(images)
    vit.fix_input_size((56, 40))
    torch.testing.assert_close(vit(images)[0], before)
    rows = [len(block.attn.rel_pos_bias.rel_pos_h) for block in vit.blocks]
    assert rows == [5, 13, 5, 13]  # three rows of a window, or seven


def test_offsets_between_old_ones_are_their_means():
    resized = resize_offsets(torch.tensor([[0.0], [6.0], [12.0]]), 5)
    # Nine entries over three: steps of a third, the ends repeated.
    expected = [0, 0, 2, 4, 6, 8, 10, 12, 12]
    torch.testing.assert_close(resized[:, 0], torch.tensor(expected).float())


def test_weights_of_vitdet_have_an_entry_for_a_lost_cls_token(build_vit, tmp_path):
    """Detectron2's names and layout."""
    source, vit = (build_vit(depth=4, img_size=32, **WINDOWS) for _ in range(2))
    state, pos_embed = source.state_dict(), source.pos_embed
    weights = {k.replace('rel_pos_bias.', ''): v for k, v in state.items()}
    weights['pos_embed'] = torch.cat([pos_embed[:, :1], pos_embed], dim=1)
    torch.save(dict(model=weights), tmp_path / 'vitdet.pth')
    load(vit, tmp_path / 'vitdet.pth')
    images = torch.randn(1, 3, 40, 32)
    torch.testing.assert_close(vit(images), source(images))
