"""Narrow plain ViTs of timm, as anchors and as timm's own models."""

import pytest
import torch
from staged_anchors import disturb
from states import states_of
from torch.testing import assert_close

from snnet_mm.anchors import TimmAnchor

timm = pytest.importorskip('timm')

DINOV2 = 'vit_small_patch14_reg4_dinov2'
EVA02 = 'eva02_small_patch14_224'
# By name: arguments besides NARROW, and number of prefix tokens.
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
}
NARROW = dict(embed_dim=32, depth=3, num_heads=2)


def patch_of(name):
    return 14 if 'patch14' in name else 16


def anchor_of(name, **kwargs):
    args, _ = FAMILIES[name]
    size = 5 * patch_of(name), 4 * patch_of(name)
    kwargs = dict(img_size=size, out_indices=(0, 1, 2)) | kwargs
    torch.manual_seed(0)
    return disturb(TimmAnchor(name, model_args=dict(NARROW, **args), **kwargs)).eval()


def timm_of(name, anchor, **kwargs):
    """Build timm's model with the weights of an anchor."""
    kwargs |= dict(dynamic_img_size=True, dynamic_img_pad=True)
    args = dict(NARROW, num_classes=0, img_size=anchor.input_size)
    kwargs = args | FAMILIES[name][0] | kwargs
    model = timm.create_model(name, **kwargs)
    if next(model.parameters()).is_meta:
        return model.eval()
    weights = anchor.vit.state_dict()
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert {k.split('.')[0] for k in missing} <= {'attn_pool', 'fc_norm'}
    assert not unexpected
    return model.eval()


@torch.no_grad()
def assert_equal_to_timm(anchor, model, images):
    end = states_of(anchor, images)[-1].tokens
    wanted = model.forward_intermediates(images, intermediates_only=True)
    assert_close(end, model.forward_features(images), rtol=1e-5, atol=1e-5)
    wanted[-1] = model.norm(wanted[-1].transpose(1, 3)).transpose(1, 3)
    assert end.std() > 0.1
    assert_close(anchor(images), tuple(wanted), rtol=1e-5, atol=1e-5)
