"""Configs of narrow timm networks with stages."""

import torch
from timm.models import mvitv2
from torch.nn.modules.batchnorm import _BatchNorm


def anchor(name, args, /, **kwargs):
    config = dict(type='TimmStageAnchor', model=name, img_size=64, model_args=args)
    return config | kwargs


def swin(width=8, depths=(2, 2, 3, 2), heads=(1, 2, 2, 4), **kwargs):
    args = dict(embed_dim=width, depths=depths, num_heads=heads, window_size=4)
    args |= kwargs.pop('model_args', {})
    return anchor('swin_tiny_patch4_window7_224', args, **kwargs)


def resnet(model='resnet18', channels=(8, 12, 16, 20), **kwargs):
    args = dict(channels=channels, stem_type='deep', stem_width=4)
    return anchor(model, args, **kwargs)


def convnext(dims=(8, 12, 16, 20), depths=(1, 2, 3, 1), **kwargs):
    return anchor('convnext_tiny', dict(dims=dims, depths=depths), **kwargs)


def levit(widths=(16, 24, 32), depth=(2, 2, 2), **kwargs):
    args = dict(embed_dim=widths, depth=depth, num_heads=(2, 2, 2), key_dim=8)
    return anchor('levit_192', args, **kwargs)


def mobilenet(**kwargs):
    return anchor('mobilenetv3_small_050', {}, **kwargs)


def samvit(width=16, **kwargs):
    args = dict(embed_dim=width, depth=3, num_heads=2, window_size=3)
    return anchor(
        'samvit_base_patch16', args | dict(global_attn_indexes=(1,)), **kwargs
    )


def hiera(width=8, stages=(1, 2, 2, 1), **kwargs):
    return anchor('hiera_tiny_224', dict(embed_dim=width, stages=stages), **kwargs)


def pvt(dims=(8, 12, 16, 20), **kwargs):
    args = dict(embed_dims=dims, depths=(1, 2, 2, 1), num_heads=(1, 2, 4, 5))
    return anchor('pvt_v2_b0', args, **kwargs)


def mvit(**kwargs):
    return anchor('mvitv2_tiny', {}, **kwargs)


# Its function in timm takes no arguments that make it narrow.
NARROW = mvitv2.MultiScaleVitCfg(depths=(1, 2, 2, 1), embed_dim=8)
mvitv2.model_cfgs['mvitv2_tiny'] = NARROW


def caformer(dims=(8, 12, 32, 64), **kwargs):
    return anchor('caformer_s18', dict(dims=dims, depths=(1, 2, 2, 1)), **kwargs)


# Settings of the head that classifies the last map of each network.
ENDS = dict(
    swin=dict(pooling='norm-mean', norm_eps=1e-5),
    resnet=dict(pooling='mean', norm=None),
    convnext=dict(pooling='mean'),
    mobilenet=dict(pooling='mean', norm=None, hidden=1024),
    levit=dict(pooling='mean', norm='BN', distilled=True),
)


@torch.no_grad()
def disturb(network):
    """Draw weights and statistics that all affect the output but keep it bounded."""
    for parameter in network.parameters():
        if parameter.ndim > 1:
            parameter.normal_(std=0.2)
        else:
            parameter.uniform_(0.5, 1)
    for norm in network.modules():
        if isinstance(norm, _BatchNorm):
            norm.running_mean.normal_(std=0.1)
            norm.running_var.uniform_(0.5, 2)
    return network
