import pytest
import torch

from snnet_mm.anchors import PlainViT, check_out_indices

ARCH = dict(embed_dims=8, depth=4, num_heads=2)
WINDOWS = dict(cls_token=False, window_size=3, decomposed_rel_pos=True)


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(arch='smal'), "arch='smal'; .*'base'.*did you mean 'small'"),
        (dict(arch=dict(embed_dims=8, depth=2)), 'num_heads.*arch'),
        (dict(arch=ARCH | dict(dim=8)), "'dim': 8.*arch"),
        (dict(arch=ARCH | dict(num_heads=3)), 'divisible by num_heads.*arch'),
        (dict(arch=ARCH | dict(mlp_ratio=0)), 'mlp_ratio above 0'),
        (dict(patch_size=0), 'patch_size=0; .*patch_size'),
        (dict(img_size=7), r'img_size=7; .* \(8\) or more'),
        (dict(num_registers=-1), 'num_registers=-1; '),
        (dict(drop_path_rate=1), 'drop_path_rate=1; '),
        (dict(layer_scale_init='no'), "layer_scale_init='no'; "),
        (dict(out_indices=(4,)), r'out_indices=\(4,\); .* blocks -4 to 3'),
        (dict(out='map'), "did you mean 'maps'"),
        (dict(with_cls=True, cls_token=False), 'with_cls=True'),
        (dict(frozen_stages=-2), r'frozen_stages=-2; .* to 4 \('),
        (dict(kept_blocks=(4,)), r'kept_blocks=\(4,\); .* blocks 0 to 3'),
        (dict(lora=dict(rank=2, beta=1)), "'beta': 1.*config key: lora"),
        (dict(lora=dict(rank=2, targets=('fc1',))), r"targets among \('qkv', 'proj'\)"),
        (dict(lora=dict(rank=9)), 'rank=9.* 8.*lora.rank'),
        (dict(WINDOWS, global_blocks=(1, 4)), r'\(1, 4\); .*0 to 3'),
        (dict(WINDOWS, window_size=-1), 'window_size=-1'),
        (dict(WINDOWS, window_size=0, global_blocks=(1,)), 'window_size is 0'),
        (dict(WINDOWS, cls_token=True), 'cls_token, num_registers=1; '),
        (dict(WINDOWS, rel_pos_bias=True), 'rel_pos_bias=True; '),
    ],
)
def test_settings_that_are_refused(settings, message):
    with pytest.raises(ValueError, match=message) as error:
        PlainViT(**dict(arch=ARCH, img_size=32, patch_size=8) | settings)
    assert 'config key: ' in str(error.value)


def test_out_indices_count_from_the_end_too():
    assert check_out_indices([0, -1, -12, 11], 12) == (0, 11, 0, 11)


def test_sizes_of_the_architectures():
    # Millions of parameters of the blocks alone, from 12 C^2 + 13 C each.
    millions = dict(tiny=5.3, small=21.3, base=85.1, large=302.3, huge=629.7)
    for arch, size in millions.items():
        with torch.device('meta'):
            vit = PlainViT(arch, patch_size=14, layer_scale_init=None)
        number, dim = sum(p.numel() for p in vit.blocks.parameters()), vit.block_dims[0]
        assert number == vit.depth * (12 * dim**2 + 13 * dim)
        assert number / 1e6 == pytest.approx(size, abs=0.06)
        assert dim // vit.blocks[0].attn.num_heads == (80 if arch == 'huge' else 64)
