"""Stock configs of the mm packages with narrow backbones: the table of the README."""

from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

import torch
from mmengine.config import Config
from mmengine.registry import MODELS
from narrowing import narrow_config, read_maps, without_weights

from snnet_mm.elastic import elastic_model
from snnet_mm.stitching import write_plan

RESNET = dict(base_channels=8, stem_channels=8)
PLAIN = dict(embed_dims=32, num_layers=4, num_heads=2, img_size=(64, 64))
ARCH = dict(embed_dims=32, num_layers=4, num_heads=2, feedforward_channels=64)
SWIN = dict(embed_dims=8, depths=(2, 2, 3, 2), num_heads=(1, 2, 2, 4))
PYRAMID = dict(embed_dims=[8, 12, 16, 32], depths=[1, 2, 2, 1])
TWINS = PYRAMID | dict(num_heads=[1, 2, 2, 4], mlp_ratios=[2, 2, 2, 2])
TWINS_CLS = dict(sr_ratios=[4, 2, 2, 1], strides=[4, 2, 2, 2], patch_sizes=[4, 2, 2, 2])
# What makes the backbones of a family narrow.
NARROW = dict(
    MMResNet=RESNET,
    MMMiT=dict(embed_dims=8, num_layers=[2, 2, 2, 2]),
    MMSegViT=PLAIN | dict(out_indices=(0, 1, 2, 3)),
    MMSwin=SWIN | dict(window_size=4),
    MMPretrainViT=dict(arch=ARCH, img_size=64),
    MMTwins=TWINS,
    MMPVT=dict(embed_dims=8, num_heads=[1, 2, 2, 4]),
    MMConvNeXt=dict(arch=dict(depths=[1, 2, 2, 1], channels=[8, 12, 16, 32])),
    MMVAN=dict(
        arch=dict(
            embed_dims=[8, 12, 16, 32], depths=[1, 2, 2, 1], ffn_ratios=[2, 2, 2, 2]
        )
    ),
)
NARROW_IN_MMPRETRAIN = NARROW | dict(
    MMResNet=RESNET | dict(expansion=4),
    MMSwin=dict(arch=SWIN, img_size=64, pad_small_map=True),
    MMTwins=dict(arch=TWINS | TWINS_CLS),
)
# Families of the backbones of stock configs.
CASES = {
    'mmseg/upernet/upernet_r50_4xb4-80k_ade20k-512x512': 'MMResNet',
    'mmseg/pspnet/pspnet_r50-d8_4xb4-80k_ade20k-512x512': 'MMResNet',
    'mmseg/point_rend/pointrend_r50_4xb4-160k_ade20k-512x512': 'MMResNet',
    'mmseg/segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512': 'MMMiT',
    'mmseg/setr/setr_vit-l_naive_8xb2-160k_ade20k-512x512': 'MMSegViT',
    'mmseg/dpt/dpt_vit-b16_8xb2-160k_ade20k-512x512': 'MMSegViT',
    'mmseg/beit/beit-base_upernet_8xb2-160k_ade20k-640x640': 'MMSegViT',
    'mmseg/mae/mae-base_upernet_8xb2-amp-160k_ade20k-512x512': 'MMSegViT',
    'mmseg/swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512': (
        'MMSwin'
    ),
    'mmseg/twins/twins_pcpvt-s_fpn_fpnhead_8xb4-80k_ade20k-512x512': 'MMTwins',
    'mmdet/centernet/centernet_r18_8xb16-crop512-140e_coco': 'MMResNet',
    'mmdet/mask_rcnn/mask-rcnn_r50_fpn_1x_coco': 'MMResNet',
    'mmdet/retinanet/retinanet_r50_fpn_1x_coco': 'MMResNet',
    'mmdet/yolact/yolact_r50_1xb8-55e_coco': 'MMResNet',
    'mmdet/swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco': 'MMSwin',
    'mmdet/swin/retinanet_swin-t-p4-w7_fpn_1x_coco': 'MMSwin',
    'mmdet/pvt/retinanet_pvtv2-b0_fpn_1x_coco': 'MMPVT',
    'mmpretrain/resnet/resnet50_8xb32_in1k': 'MMResNet',
    'mmpretrain/deit/deit-small_4xb256_in1k': 'MMPretrainViT',
    'mmpretrain/deit/deit-small-distilled_4xb256_in1k': 'MMPretrainViT',
    'mmpretrain/eva02/eva02-tiny-p14_in1k': 'MMPretrainViT',
    'mmpretrain/deit3/deit3-small-p16_64xb64_in1k': 'MMPretrainViT',
    'mmpretrain/vision_transformer/vit-base-p16_64xb64_in1k': 'MMPretrainViT',
    'mmpretrain/beit/benchmarks/beit-base-p16_8xb128-coslr-100e_in1k': 'MMPretrainViT',
    'mmpretrain/swin_transformer/swin-tiny_16xb64_in1k': 'MMSwin',
    'mmpretrain/convnext/convnext-tiny_32xb128_in1k': 'MMConvNeXt',
    'mmpretrain/van/van-tiny_8xb128_in1k': 'MMVAN',
    'mmpretrain/twins/twins-pcpvt-small_8xb128_in1k': 'MMTwins',
}


def read_stock(package, stock, data, work_dir):
    """Read a stock config, with a narrow network."""
    folder = Path(find_spec(package).origin).parent / '.mim' / 'configs'
    cfg = narrow_config(Config.fromfile(folder / f'{stock}.py'), data, work_dir)
    without_weights(cfg.model)
    if 'pretrained' in cfg.model:
        cfg.model.pretrained = None
    narrow = NARROW_IN_MMPRETRAIN if package == 'mmpretrain' else NARROW
    cfg.model.backbone.update(narrow[CASES[f'{package}/{stock}']])
    with MODELS.switch_scope_and_registry(package) as registry, torch.no_grad():
        backbone = registry.build(deepcopy(cfg.model.backbone))
        maps = backbone(torch.zeros(2, 3, 64, 64))
    # DPT's backbone adds a cls token to each map, a distilled DeiT has two.
    maps = [found if isinstance(found, torch.Tensor) else found[0] for found in maps]
    read_maps(cfg.model, [found.shape[1] for found in maps])
    return cfg


def chains_of(network):
    """Return plans without the first branch, of half the units, and of no branches."""
    view = elastic_model(network).backbone.view
    blocks = [None if u.branch is None else u.block for u in view.steps]
    first, free = view.skippable[0], view.skippable
    plans = [
        [0 if i == first else n for i, n in enumerate(view.widths)],
        [(n + 1) // 2 for n in view.widths],
        [0 if i in free else n for i, n in enumerate(view.widths)],
    ]
    plans = [tuple(plan) for plan in plans if tuple(plan) != view.widths]
    return [write_plan(plan, blocks) for plan in plans]
