import pytest
import torch
from torch.testing import assert_close

from snnet_mm.anchors import PlainViT

ARCH = dict(embed_dims=8, depth=4, num_heads=2)
WINDOWS = dict(cls_token=False, window_size=3, decomposed_rel_pos=True)


def test_plain_vit_pads_img_size_to_whole_patches(build_vit):
    vit = build_vit(img_size=(17, 30))
    images, padded = torch.randn(2, 3, 17, 30), torch.zeros(2, 3, 24, 32)
    padded[:, :, :17, :30] = images
    tokens, grid = vit.embed(images)
    assert grid == vit.grid == (3, 4)
    assert tokens.equal(vit.embed(padded).tokens)
    patches = vit.patch_embed(padded).flatten(2).transpose(1, 2)
    assert_close(tokens[:, 1:], patches + vit.pos_embed)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(arch='smal'), "arch='smal' .*'base'.* 'small'"),
        (dict(arch=ARCH | dict(num_heads=3)), "'num_heads': 3.*key: arch"),
        (dict(out_indices=(4,)), r'out_indices=\(4,\).* -4 to 3'),
        (dict(frozen_stages=-2), 'frozen_stages=-2.* to 4'),
        (dict(lora=dict(rank=9)), 'rank=9.* 8.*lora.rank'),
        (dict(drop_path_rate=1), 'drop_path_rate=1 is '),
        (dict(drop_path_rate=[0.1] * 4), 'drop_path_rate=.* a number in'),
        (dict(WINDOWS, global_blocks=(1, 4)), r'\(1, 4\) is .*0 to 3'),
        (dict(WINDOWS, cls_token=True), 'cls_token, num_registers=1 is '),
        (dict(adapter=dict(width=0)), 'adapter='),
        (dict(adapter=dict(width=2, rank=2)), 'adapter='),
        (dict(adapter=dict(width=2), lora=dict(rank=2)), 'adapter='),
    ],
)
def test_plain_vit_wrong_settings_raise(settings, message):
    with pytest.raises(ValueError, match=message):
        PlainViT(**dict(arch=ARCH, img_size=32, patch_size=8) | settings)
