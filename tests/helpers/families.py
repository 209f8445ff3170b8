"""Narrow networks of all families of blocks that have branches."""

import pytest
from mm_backbones import PLAIN_CASES, STAGED_CASES
from staged_anchors import (
    caformer,
    convnext,
    hiera,
    levit,
    mobilenet,
    mvit,
    pvt,
    resnet,
    samvit,
    swin,
)

ARCH = dict(embed_dims=16, depth=2, num_heads=4)
OWN = [
    dict(img_size=32, final_norm=True, layer_scale_init=0.5),
    dict(img_size=32, rel_pos_bias=True),
    dict(img_size=64, cls_token=False, window_size=3, decomposed_rel_pos=True),
]
SMALL = dict(depth=2, embed_dim=24, num_heads=3)
# Plain ViTs of timm with every kind of attention and MLP, and their own arguments.
TIMM = {
    'vit_tiny_patch16_224.augreg_in21k': {},
    'deit3_small_patch16_224.fb_in1k': {},
    'vit_giant_patch14_reg4_dinov2': dict(patch_size=16),
    'aimv2_large_patch14_224': dict(patch_size=16),
    'vit_small_patch16_dinov3': {},
    'vit_small_plus_patch16_dinov3': {},
    'eva02_small_patch14_224': dict(patch_size=16),
    'eva02_base_patch14_224': dict(patch_size=16),
    'eva02_base_patch16_clip_224': {},
    'vit_pe_core_base_patch16_224': {},
    'vit_small_patch16_rope_mixed_224': {},
    'beit_base_patch16_224': {},
}
STAGED = {
    'swin': swin(heads=(2, 2, 4, 4)),
    # Windows that fill no map.
    'swin_padded': swin(
        heads=(2, 2, 4, 4), img_size=96, model_args=dict(window_size=5)
    ),
    'swin_v2': swin(model='swinv2_tiny_window8_256'),
    'convnext': convnext(),
    'convnext_v2': convnext(model='convnextv2_atto'),
    'resnet': resnet(),
    'levit': levit(),
    'mobilenet': mobilenet(),
    'samvit': samvit(),
    'hiera': hiera(),
    'pvt': pvt(),
    'mvit': mvit(),
    'caformer': caformer(),
}


def families(quick=None):
    """Yield configs of anchors as parameters of tests; of ResNets, a single one.

    Those whose ids are not in ``quick``, if it is given, are for slow tests.
    """
    for name, config in all_families():
        slow = quick is not None and name not in quick
        if config['type'] != 'MMResNet' or name == 'mmseg.ResNet':
            yield pytest.param(config, id=name, marks=[pytest.mark.slow] * slow)


# With every kind of attention and MLP that timm and mmpretrain's EVA-02 have.
KINDS = {
    'vit_tiny_patch16_224.augreg_in21k',
    'vit_giant_patch14_reg4_dinov2',
    'aimv2_large_patch14_224',
    'vit_small_patch16_dinov3',
    'vit_small_plus_patch16_dinov3',
    'eva02_small_patch14_224',
    'vit_pe_core_base_patch16_224',
    'mmpretrain.ViTEVA02',
    *('swin', 'swin_padded', 'convnext', 'convnext_v2'),
}


def of_every_kind():
    """Return networks of which all branches can be narrow, one of every kind."""
    listed = [p for p in families() if p.id in KINDS]
    return [p for p in listed if not p.values[0].get('net', {}).get('sub_ln')]


def all_families():
    """Yield names and configs of anchors for every row of the table of families."""
    for family, kind, settings, _ in [*PLAIN_CASES, *STAGED_CASES]:
        yield kind, dict(type=family, net=dict(type=kind, **settings))
    for settings in OWN:
        yield 'PlainViT', dict(type='PlainViT', arch=ARCH, **settings)
    for model, args in TIMM.items():
        size = 64 if model.startswith('beit') else 32  # BEiT accepts no other
        config = dict(type='TimmAnchor', model=model, img_size=size)
        yield model, dict(config, model_args=SMALL | args)
    yield from STAGED.items()
