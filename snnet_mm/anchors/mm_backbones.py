"""Trained ViTs, Swins and ResNets of the mm packages as anchors, with their heads."""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import torch
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check, refusal, register

from .base import Anchor
from .plain_vit import PlainViT
from .pretrained import Weights, rename, select_prefix
from .timm_internals import pad_before_shift
from .timm_stage_anchor import TimmStageAnchor

MM_PACKAGES = ('mmseg', 'mmdet', 'mmpretrain')
# Backbones that convert, and with which settings.
FITTING = dict(
    VisionTransformer="one without pre_norm and out_origin, with mmcv's feed-forward",
    SwinTransformer='one without use_abs_pos_embed and out_after_downsample',
    ResNet="style='pytorch' with strides (1, 2, 2, 2) and the stem of one convolution; "
    'no dilations, dcn or plugins',
)
_VIT = (
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'\.attn\.attn\.in_proj_', '.attn.qkv.'),
    (r'\.attn\.attn\.out_proj\.', '.attn.proj.'),
)
_SWIN = (
    (r'^patch_embed\.projection\.', 'patch_embed.proj.'),
    (r'^stages\.', 'layers.'),
    (r'\.attn\.w_msa\.', '.attn.'),
    (r'\.ffn\.layers\.0\.0\.', '.mlp.fc1.'),
    (r'\.ffn\.layers\.1\.', '.mlp.fc2.'),
)


@register(MODELS)
class MMSwinAnchor(TimmStageAnchor):
    """A Swin that pads maps to whole windows before it shifts them, as mm's does.

    timm shifts first; both are the same where windows cover a map.
    """

    def __init__(self, **kwargs) -> None:
        super().__init__(**{'model': 'swin_tiny_patch4_window7_224', **kwargs})
        for block in (getattr(block, 'block', block) for block in self.blocks):
            if not isinstance(block, nn.Identity):
                pad_before_shift(block)


class AnchorParts(NamedTuple):
    """An anchor, and the norms and pooling of its backbone that belong to the head."""

    config: dict
    weights: Weights
    norms: Sequence[nn.LayerNorm] = ()
    pooling: str = 'mean'

    def build(self) -> Anchor:
        """Build the anchor, with the weights; an error says which do not fit."""
        anchor = MODELS.build(dict(self.config))
        size = (anchor.input_size,) if isinstance(anchor, PlainViT) else ()
        anchor.load_state_dict(anchor.adapt_weights(self.weights, *size))
        return anchor


def anchor_model(
    config: Mapping, model: nn.Module
) -> tuple[dict, dict[str, Tensor], Anchor]:
    """Return config and weights of the same mm model on an anchor of ours, and that.

    The model may be on an anchor, or on a ViT, Swin or ResNet of mm. Norms that mm's
    Swin has after its stages become a neck, linear heads an ``AnchorClassifier``.
    """
    config, net, classifies = dict(config), model.backbone, 'head' in config
    if config.get('pretrained'):
        config['pretrained'] = None  # would be set in the backbone
    unset = {'init_cfg', 'pretrained'} & set(config['backbone'])
    own = dict(config['backbone']) | dict.fromkeys(unset)
    parts, anchor = AnchorParts(own, net.state_dict()), net
    if not isinstance(net, Anchor):
        parts = convert_backbone(net, classifies)
        try:
            anchor = parts.build()
        except (RuntimeError, ValueError) as error:
            kind = type(net).__name__
            wanted = f'{FITTING[kind]} ({" ".join(str(error).split())[:150]} ...)'
            raise refusal('model.backbone', kind, wanted) from error
    config['backbone'] = dict(parts.config)
    weights = model.state_dict()
    weights = {k: v for k, v in weights.items() if not k.startswith('backbone.')}
    if classifies:
        config['backbone']['out'] = 'end'
        weights = _anchor_head(config, weights, parts, anchor.block_dims[-1])
    elif parts.norms:
        weights = _norms_first(config, weights, parts.norms)
    weights |= {f'backbone.{k}': v for k, v in anchor.state_dict().items()}
    return config, weights, anchor


def convert_backbone(net: nn.Module, classifies: bool = False) -> AnchorParts:
    """Return mm's ViT, Swin or ResNet as an anchor of equal features."""
    kind = type(net).__name__
    known = type(net).__module__.split('.')[0] in MM_PACKAGES and kind in FITTING
    allowed = f'an anchor (PlainViT, TimmAnchor, TimmStageAnchor) or {[*FITTING]}'
    check(known, 'model.backbone.type', kind, f'{allowed} of {MM_PACKAGES}')
    if kind == 'VisionTransformer':
        return _vit(net, classifies)
    return _swin(net, classifies) if kind == 'SwinTransformer' else _resnet(net)


def _vit(net: nn.Module, classifies: bool) -> AnchorParts:
    first, projection = net.layers[0], net.patch_embed.projection
    dim = projection.out_channels
    weights = {rename(k, _VIT): v for k, v in net.state_dict().items()}
    for part in ('patch_embed', *(f'layers.{i}.attn' for i in range(len(net.layers)))):
        weights.setdefault(f'{part}.proj.bias', torch.zeros(dim))  # may have none
    if 'cls_token' in weights and not net.with_cls_token:  # mmseg's leaves it out
        del weights['cls_token']
        weights['pos_embed'] = weights['pos_embed'][:, 1:]
    arch = dict(embed_dims=dim, depth=len(net.layers), num_heads=first.attn.num_heads)
    config = dict(
        type='PlainViT',
        arch=dict(arch, mlp_ratio=first.ffn.feedforward_channels / dim),
        img_size=tuple(net.img_size),
        patch_size=projection.kernel_size[0],
        cls_token=net.with_cls_token,
        pos_embed_prefix=net.with_cls_token,
        pos_embed_antialias=False,
        pos_embed_mode=net.interpolate_mode,
        qkv_bias='layers.0.attn.qkv.bias' in weights,
        layer_scale_init=1e-5 if 'layers.0.attn.gamma1.weight' in weights else None,
        final_norm=bool(net.final_norm) and not classifies,
        norm_eps=first.norm1.eps,
        out_indices=tuple(net.out_indices),
        with_cls=getattr(net, 'output_cls_token', False),
        **_training(net.patch_embed, net.layers),
    )
    kind = getattr(net, 'out_type', 'featmap')
    norms = [net.norm1] if net.final_norm else []
    if kind == 'avg_featmap':  # the mean of patches has a norm of its own
        norms = [net.ln2]
    weights = {k: v for k, v in weights.items() if not k.startswith('ln2.')}
    poolings = dict(cls_token='cls', avg_featmap='mean')
    pooling = poolings.get(kind, 'norm-mean')
    return AnchorParts(config, weights, norms if classifies else (), pooling)


def _swin(net: nn.Module, classifies: bool) -> AnchorParts:
    stages, projection = net.stages, net.patch_embed.projection
    blocks = [block for stage in stages for block in stage.blocks]
    attention, ffn = blocks[0].attn, blocks[0].ffn
    model_args = dict(
        embed_dim=projection.out_channels,
        depths=tuple(len(stage.blocks) for stage in stages),
        num_heads=tuple(stage.blocks[0].attn.w_msa.num_heads for stage in stages),
        window_size=attention.window_size,
        patch_size=projection.kernel_size[0],
        mlp_ratio=ffn.feedforward_channels / ffn.embed_dims,
        qkv_bias=attention.w_msa.qkv.bias is not None,
        # mmseg's and mmdet's pad maps to whole windows, however small these are.
        always_partition=getattr(attention, 'pad_small_map', True),
    )
    rows = getattr(net, 'patch_resolution', None)
    size = rows and tuple(n * model_args['patch_size'] for n in rows)
    ends = [end - 1 for end in accumulate(model_args['depths'])]
    config = dict(
        type='MMSwinAnchor',
        model_args=model_args,
        img_size=size or 224,
        out_indices=tuple(ends[i] for i in net.out_indices),
        **_training(net.patch_embed, blocks),
    )
    weights = {}
    for name, value in net.state_dict().items():
        key = rename(name, _SWIN)
        if '.downsample.' in key:
            # timm's belongs to the stage after it, and reads the four neighbours
            # column by column, all channels of one after another.
            stage = int(key.split('.')[1])
            key = key.replace(f'layers.{stage}.', f'layers.{stage + 1}.')
            value = value.unflatten(-1, (-1, 2, 2)).transpose(-1, -3).flatten(-3)
        weights[key] = value
    norms = [getattr(net, f'norm{i}') for i in net.out_indices]
    return AnchorParts(
        config, weights, norms[-1:] if classifies else norms, 'norm-mean'
    )


def _resnet(net: nn.Module) -> AnchorParts:
    check(not net.deep_stem, 'model.backbone.deep_stem', True, FITTING['ResNet'])
    stages = [getattr(net, name) for name in net.res_layers]
    ends = [end - 1 for end in accumulate(map(len, stages))]
    blocks = list(chain(*stages))
    config = dict(
        type='TimmStageAnchor',
        model=f'resnet{net.depth}',
        out_indices=tuple(ends[i] for i in net.out_indices),
        **_training(net.conv1, blocks),
    )
    return AnchorParts(config, net.state_dict())


def _training(stem: nn.Module, blocks: Sequence[nn.Module]) -> dict:
    ffn = getattr(blocks[-1], 'ffn', None)
    drop = getattr(ffn, 'dropout_layer', getattr(blocks[-1], 'drop_path', None))
    rate = round(float(getattr(drop, 'drop_prob', 0)), 6)
    trains = [any(p.requires_grad for p in m.parameters()) for m in (stem, *blocks)]
    frozen = [*trains, True].index(True) - 1
    settings = dict(drop_path_rate=rate or None, frozen_stages=frozen)
    return {k: v for k, v in settings.items() if v not in (None, -1)}


def _norms_first(
    model: dict, weights: Weights, norms: Sequence[nn.LayerNorm]
) -> dict[str, Tensor]:
    """Put norms of maps before the neck; return the weights without the backbone."""
    neck, place = model.get('neck'), 'neck.norms.'
    own = dict(
        type='NormPerMap',
        in_channels=[norm.normalized_shape[0] for norm in norms],
        norm_cfg=dict(type='MapLayerNorm', eps=norms[0].eps),
    )
    if neck:
        listed = isinstance(neck, Sequence)
        check(not listed, 'model.neck', neck, 'one neck; a list cannot get norms first')
        place, own = 'neck.0.norms.', [own, neck]
    model['neck'] = own
    named = {re.sub(r'^neck\.', 'neck.1.', k): v for k, v in weights.items()}
    for i, norm in enumerate(norms):
        named |= {f'{place}{i}.{k}': v for k, v in norm.state_dict().items()}
    return named


def _anchor_head(
    model: dict, weights: Weights, parts: AnchorParts, width: int
) -> dict[str, Tensor]:
    head, neck = model['head'], model.get('neck') or dict(type='')
    kind, pooling = (part['type'].rpartition('.')[2] for part in (head, neck))
    if kind == 'StitchedClsHead':
        return dict(weights)
    linear = dict(
        LinearClsHead='head.fc.', VisionTransformerClsHead='head.layers.head.'
    )
    check(kind in linear and not head.get('hidden_dim'), 'model.head', kind, linear)
    poolings = ('', 'GlobalAveragePooling')
    check(pooling in poolings, 'model.neck', pooling, poolings)
    norm = (
        dict(norm='LN', norm_eps=parts.norms[0].eps) if parts.norms else {'norm': None}
    )
    own = dict(in_channels=width, pooling=parts.pooling, **norm)
    kept = {k: head[k] for k in ('loss', 'topk', 'cal_acc', 'num_classes') if k in head}
    model['head'] = dict(type='StitchedClsHead', anchor_heads=[own], **kept)
    model['neck'] = None
    named = {f'head.{k}': v for k, v in select_prefix(weights, linear[kind]).items()}
    for layer in parts.norms:
        named |= {f'norm.{k}': v for k, v in layer.state_dict().items()}
    return {f'head.anchor_heads.0.{k}': v for k, v in named.items()}
