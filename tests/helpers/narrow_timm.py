import pytest
import torch
from states import states_of
from torch.testing import assert_close

from snnet_mm.anchors import TimmAnchor

timm = pytest.importorskip('timm')

DINOV2 = 'vit_small_patch14_reg4_dinov2'
EVA02 = 'eva02_small_patch14_224'
BEIT = dict(use_shared_rel_pos_bias=True, use_abs_pos_emb=True)
SAM = dict(window_size=3, global_attn_indexes=(1,))
# Arguments beside width, depth and heads; prefix tokens.
FAMILIES = {
    DINOV2: ({}, 5),
    'vit_giant_patch14_reg4_dinov2': ({}, 5),
    'deit3_small_patch16_224': ({}, 1),
    'deit_small_distilled_patch16_224': ({}, 2),
    'vit_base_patch16_224.augreg_in21k': ({}, 1),
    'vit_base_patch16_siglip_256.v2_webli': ({}, 0),
    'vit_base_patch16_clip_224.openai': ({}, 1),
    EVA02: ({}, 1),
    'vit_small_patch16_dinov3': (dict(rope_rescale_coords=2), 5),
    'vit_pe_spatial_base_patch16_512': ({}, 1),
    'vit_pe_core_base_patch16_224': ({}, 1),
    'vit_small_patch16_rope_mixed_224': ({}, 1),
    'vit_base_patch16_rope_reg1_gap_256': ({}, 1),
    'beitv2_base_patch16_224': ({}, 1),
    'beit_base_patch16_224': (BEIT, 1),
    'samvit_base_patch16': (SAM, 0),
}
NARROW = dict(embed_dim=32, depth=3, num_heads=2)


@torch.no_grad()
def randomise(model):
    for name, parameter in model.named_parameters():
        flat = parameter.ndim == 1 or name.endswith(('embed', 'token', 'table'))
        std = 0.3 if flat else parameter[0].numel() ** -0.5
        parameter.normal_(std=std)
    return model.eval()


def patch_of(name):
    return 14 if 'patch14' in name else 16


def anchor_of(name, **kwargs):
    args, _ = FAMILIES[name]
    size = 5 * patch_of(name), 4 * patch_of(name)
    kwargs = dict(img_size=size, out_indices=(0, 1, 2)) | kwargs
    torch.manual_seed(0)
    return randomise(TimmAnchor(name, model_args=dict(NARROW, **args), **kwargs))


def timm_of(name, anchor, img_size=None, **kwargs):
    """timm's model with the weights of an anchor."""
    args, _ = FAMILIES[name]
    if not name.startswith(('beit', 'samvit')):
        kwargs |= dict(dynamic_img_size=True, dynamic_img_pad=True)
    size = img_size or anchor.input_size
    kwargs = dict(NARROW, num_classes=0, img_size=size) | args | kwargs
    model = timm.create_model(name, **kwargs)
    if next(model.parameters()).is_meta:
        return model.eval()
    weights = anchor.vit.state_dict()
    for key, table in weights.items():
        if key.endswith('bias_table') and img_size:
            weights[key] = timm.layers.resize_rel_pos_bias_table_simple(
                table, model.patch_embed.grid_size, model.state_dict()[key].shape
            )
        elif key == 'pos_embed' and img_size and 'beit' in name:
            new = model.patch_embed.grid_size
            weights[key] = timm.layers.resample_abs_pos_embed(table, new, anchor.grid)
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert {k.split('.')[0] for k in missing} <= {'neck', 'attn_pool', 'fc_norm'}
    assert not unexpected
    return model.eval()


def assert_equal_to_timm(name, anchor, model, images):
    with torch.no_grad():
        end = states_of(anchor, images)[-1].tokens
        maps = anchor(images)
        wanted = model.forward_intermediates(images, intermediates_only=True)
        if 'sam' not in name:
            assert_close(end, model.forward_features(images), rtol=1e-5, atol=1e-5)
            wanted[-1] = model.norm(wanted[-1].transpose(1, 3)).transpose(1, 3)
    assert end.std() > 0.1
    for ours, theirs in zip(maps, wanted, strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
