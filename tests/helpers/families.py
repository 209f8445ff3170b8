"""Narrow networks of all families of blocks that have branches."""

import pytest
from mm_backbones import PLAIN_CASES, STAGED_CASES

ARCH = dict(embed_dims=16, depth=2, num_heads=4)
OWN = [
    dict(img_size=32, final_norm=True, layer_scale_init=0.5),
    dict(img_size=32, rel_pos_bias=True),
    dict(img_size=64, cls_token=False, window_size=3, decomposed_rel_pos=True),
]
SMALL = dict(depth=2, embed_dim=24, num_heads=3)
TIMM = 'vit_tiny_patch16_224.augreg_in21k', 'deit3_small_patch16_224.fb_in1k'


def families(quick=None):
    """Yield configs of anchors as parameters of tests; of ResNets, a single one.

    Those whose ids are not in ``quick``, if it is given, are for slow tests.
    """
    for name, config in _families():
        slow = quick is not None and name not in quick
        yield pytest.param(config, id=name, marks=[pytest.mark.slow] * slow)


def _families():
    for family, kind, settings, _ in [*PLAIN_CASES, *STAGED_CASES]:
        if family != 'MMResNet' or kind == 'mmseg.ResNet':
            net = dict(type=kind, **settings)
            yield kind, dict(type=family, net=net)
    for settings in OWN:
        yield 'PlainViT', dict(type='PlainViT', arch=ARCH, **settings)
    for model in TIMM:
        config = dict(type='TimmAnchor', model=model, img_size=32, model_args=SMALL)
        yield model, config
