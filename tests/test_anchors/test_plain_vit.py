import pytest
import torch
from torch.testing import assert_close

from snnet_mm.anchors import PlainViT


def test_an_img_size_that_is_not_whole_patches(build_vit):
    vit = build_vit(img_size=(17, 30))
    assert vit.grid == (3, 4)
    tokens, grid = vit.embed(torch.zeros(1, 3, 17, 30))
    assert grid == (3, 4)
    assert_close(tokens[:, 1:] - vit.patch_embed.proj.bias, vit.pos_embed)
    images, padded = torch.randn(2, 3, 17, 30), torch.zeros(2, 3, 24, 32)
    padded[:, :, :17, :30] = images
    assert vit.embed(images).tokens.equal(vit.embed(padded).tokens)


ARCH = dict(embed_dims=8, depth=4, num_heads=2)
WINDOWS = dict(cls_token=False, window_size=3, decomposed_rel_pos=True)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(arch='smal'), "arch='smal' is .*'base'.*did you mean 'small'"),
        (dict(arch=ARCH | dict(num_heads=3)), 'divisible by num_heads.*arch'),
        (dict(out_indices=(4,)), r'out_indices=\(4,\) is .* blocks -4 to 3'),
        (dict(frozen_stages=-2), r'frozen_stages=-2 is .* to 4 \('),
        (dict(lora=dict(rank=9)), 'rank=9.* 8.*lora.rank'),
        (dict(drop_path_rate=1), 'drop_path_rate=1 is '),
        (dict(WINDOWS, global_blocks=(1, 4)), r'\(1, 4\) is .*0 to 3'),
        (dict(WINDOWS, cls_token=True), 'cls_token, num_registers=1 is '),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message) as error:
        PlainViT(**dict(arch=ARCH, img_size=32, patch_size=8) | settings)
    assert 'config key: ' in str(error.value)
