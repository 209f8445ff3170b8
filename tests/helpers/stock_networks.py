"""Stock configs of the mm packages with narrow backbones: the table of the README."""

from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path

from mmengine.config import Config
from mmengine.registry import MODELS
from narrowing import narrow_config
from toy import without_weights

from snnet_mm.stitching import write_plan

PLAIN = dict(embed_dims=32, num_layers=4, num_heads=2, img_size=(64, 64))
DETECTOR = dict(embed_dims=8, depths=(2, 2, 3, 2), num_heads=(1, 2, 2, 4))
DETECTOR |= dict(window_size=4)
ARCH = dict(embed_dims=32, num_layers=4, num_heads=2, feedforward_channels=64)
SWIN_ARCH = dict(embed_dims=8, depths=(2, 2, 3, 2), num_heads=(1, 2, 2, 4))
CONVNEXT = dict(depths=[1, 2, 2, 1], channels=[8, 12, 16, 32])
MIT = dict(embed_dims=8, num_layers=[2, 2, 2, 2])
# Stock configs, the family of their backbone, and what makes that one narrow.
RESNET = dict(base_channels=8, stem_channels=8)
WIDE = [32, 64, 128, 256]
HEADS = dict(decode_head=dict(in_channels=WIDE), auxiliary_head=dict(in_channels=128))
LAST = dict(decode_head=dict(in_channels=256), auxiliary_head=dict(in_channels=128))
SWIN_HEADS = dict(
    decode_head=dict(in_channels=[8, 16, 32, 64]),
    auxiliary_head=dict(in_channels=32),
)
FPN = dict(neck=dict(in_channels=WIDE))
CASES = {
    'mmseg/upernet/upernet_r50_4xb4-80k_ade20k-512x512': ('MMResNet', RESNET, HEADS),
    'mmseg/pspnet/pspnet_r50-d8_4xb4-80k_ade20k-512x512': ('MMResNet', RESNET, LAST),
    'mmseg/point_rend/pointrend_r50_4xb4-160k_ade20k-512x512': (
        *('MMResNet', RESNET),
        FPN,
    ),
    'mmseg/segformer/segformer_mit-b0_8xb2-160k_ade20k-512x512': (
        *('MMMiT', MIT),
        dict(decode_head=dict(in_channels=[8, 16, 40, 64])),
    ),
    'mmseg/setr/setr_vit-l_naive_8xb2-160k_ade20k-512x512': (
        *('MMSegViT', PLAIN | dict(out_indices=(0, 1, 2, 3))),
        {},
    ),
    'mmseg/dpt/dpt_vit-b16_8xb2-160k_ade20k-512x512': (
        *('MMSegViT', PLAIN | dict(out_indices=(0, 1, 2, 3))),
        {},
    ),
    'mmseg/beit/beit-base_upernet_8xb2-160k_ade20k-640x640': (
        *('MMSegViT', PLAIN | dict(out_indices=[0, 1, 2, 3])),
        dict(neck=dict(embed_dim=32)),
    ),
    'mmseg/mae/mae-base_upernet_8xb2-amp-160k_ade20k-512x512': (
        *('MMSegViT', PLAIN | dict(out_indices=[0, 1, 2, 3])),
        dict(neck=dict(embed_dim=32)),
    ),
    'mmseg/swin/swin-tiny-patch4-window7-in1k-pre_upernet_8xb2-160k_ade20k-512x512': (
        *('MMSwin', DETECTOR),
        SWIN_HEADS,
    ),
    'mmdet/centernet/centernet_r18_8xb16-crop512-140e_coco': (
        *('MMResNet', RESNET),
        dict(neck=dict(in_channels=64, num_deconv_filters=(32, 32, 32))),
    ),
    'mmdet/mask_rcnn/mask-rcnn_r50_fpn_1x_coco': ('MMResNet', RESNET, FPN),
    'mmdet/retinanet/retinanet_r50_fpn_1x_coco': ('MMResNet', RESNET, FPN),
    'mmdet/yolact/yolact_r50_1xb8-55e_coco': ('MMResNet', RESNET, FPN),
    'mmdet/swin/mask-rcnn_swin-t-p4-w7_fpn_1x_coco': (
        *('MMSwin', DETECTOR),
        dict(neck=dict(in_channels=[8, 16, 32, 64])),
    ),
    'mmdet/swin/retinanet_swin-t-p4-w7_fpn_1x_coco': (
        *('MMSwin', DETECTOR | dict(out_indices=(1, 2, 3))),
        dict(neck=dict(in_channels=[16, 32, 64])),
    ),
    'mmpretrain/resnet/resnet50_8xb32_in1k': (
        *('MMResNet', RESNET | dict(expansion=4)),
        dict(head=dict(in_channels=256)),
    ),
    'mmpretrain/deit/deit-small_4xb256_in1k': (
        *('MMPretrainViT', dict(arch=ARCH, img_size=64)),
        dict(head=dict(in_channels=32)),
    ),
    'mmpretrain/deit3/deit3-small-p16_64xb64_in1k': (
        *('MMPretrainViT', dict(arch=ARCH, img_size=64)),
        dict(head=dict(in_channels=32)),
    ),
    'mmpretrain/vision_transformer/vit-base-p16_64xb64_in1k': (
        *('MMPretrainViT', dict(arch=ARCH, img_size=64)),
        dict(head=dict(in_channels=32)),
    ),
    'mmpretrain/beit/benchmarks/beit-base-p16_8xb128-coslr-100e_in1k': (
        *('MMPretrainViT', dict(arch=ARCH, img_size=64)),
        dict(head=dict(in_channels=32)),
    ),
    'mmpretrain/swin_transformer/swin-tiny_16xb64_in1k': (
        *('MMSwin', dict(arch=SWIN_ARCH, img_size=64, pad_small_map=True)),
        dict(head=dict(in_channels=64)),
    ),
    'mmpretrain/convnext/convnext-tiny_32xb128_in1k': (
        *('MMConvNeXt', dict(arch=CONVNEXT)),
        dict(head=dict(in_channels=32)),
    ),
}


def read_stock(package, stock, backbone, parts, data, work_dir):
    folder = Path(find_spec(package).origin).parent / '.mim' / 'configs'
    cfg = narrow_config(Config.fromfile(folder / f'{stock}.py'), data, work_dir)
    without_weights(cfg.model)
    cfg.model.backbone.update(backbone)
    if 'pretrained' in cfg.model:
        cfg.model.pretrained = None
    for name, settings in parts.items():
        cfg.model[name].update(settings)
    return cfg


def chains_of(conversion):
    """Return plans without the first branch, of half the units, and of no branches."""
    view = MODELS.build(deepcopy(conversion.backbone) | dict(chains=[])).view
    blocks = [None if u.branch is None else u.block for u in view.units]
    first, free = view.skippable[0], view.skippable
    plans = [
        [0 if i == first else n for i, n in enumerate(view.widths)],
        [(n + 1) // 2 for n in view.widths],
        [0 if i in free else n for i, n in enumerate(view.widths)],
    ]
    plans = [tuple(plan) for plan in plans if tuple(plan) != view.widths]
    return [write_plan(plan, blocks) for plan in plans]
