"""Narrow backbones of the mm packages that anchors run block by block."""

from copy import deepcopy

from mmengine.registry import MODELS

PLAIN = dict(img_size=64, patch_size=16, embed_dims=8, num_layers=3, num_heads=2)
ARCH = dict(embed_dims=8, num_layers=3, num_heads=2, feedforward_channels=16)
VIT = dict(arch=ARCH, img_size=64, patch_size=16)
BEIT = VIT | dict(use_abs_pos_emb=False)
SWIN = dict(embed_dims=8, depths=(2, 2, 3, 1), num_heads=(1, 1, 2, 2), window_size=4)
SWIN_ARCH = {k: SWIN[k] for k in ('embed_dims', 'depths', 'num_heads')}
SWIN_CLS = dict(arch=SWIN_ARCH, img_size=64, window_size=4, pad_small_map=True)
CONVNEXT = dict(arch=dict(depths=[1, 2, 2, 1], channels=[4, 8, 12, 16]))
MIT = dict(embed_dims=4, num_layers=[2, 1, 2, 1], num_heads=[1, 2, 1, 2])
VAN = dict(embed_dims=[4, 8, 12, 16], depths=[2, 1, 1, 1], ffn_ratios=[2] * 4)
PYRAMID = dict(embed_dims=[4, 8, 12, 16], depths=[2, 1, 2, 1])
MSCAN = PYRAMID | dict(mlp_ratios=[2] * 4, norm_cfg=dict(type='BN'))
PVT = dict(embed_dims=4, num_layers=[2, 1, 2, 1], num_heads=[1, 2, 1, 2])
PVT |= dict(mlp_ratios=[2] * 4, pretrain_img_size=64)
# In mmseg, parts of the architecture are arguments.
TWINS = PYRAMID | dict(num_heads=[1, 2, 1, 2], mlp_ratios=[2] * 4)
TWINS |= dict(patch_sizes=[4, 2, 2, 2], strides=[4, 2, 2, 2], sr_ratios=[4, 2, 2, 1])
TWINS_CLS = dict(arch=TWINS, out_indices=(0, 1, 2, 3))
SAM = dict(arch=ARCH | dict(global_attn_indexes=[1]), img_size=64, window_size=3)
DEEP = dict(depth=50, base_channels=4, stem_channels=4)
# Family, backbone, settings; blocks and the blocks whose maps are read.
PLAIN_CASES = [
    ('MMSegViT', 'mmseg.VisionTransformer', PLAIN | dict(out_indices=(0, 2)), (0, 2)),
    (
        *('MMSegViT', 'mmseg.VisionTransformer'),
        PLAIN
        | dict(out_indices=2, final_norm=True, pre_norm=True, output_cls_token=True),
        (2,),
    ),
    ('MMSegViT', 'mmseg.VisionTransformer', PLAIN | dict(with_cls_token=False), (2,)),
    ('MMSegViT', 'mmseg.BEiT', PLAIN | dict(out_indices=(1, 2), qv_bias=True), (1, 2)),
    ('MMSegViT', 'mmseg.MAE', PLAIN | dict(out_indices=(1, 2)), (1, 2)),
    ('MMPretrainViT', 'mmpretrain.VisionTransformer', VIT, (2,)),
    (
        *('MMPretrainViT', 'mmpretrain.VisionTransformer'),
        VIT | dict(out_type='avg_featmap', final_norm=False, pre_norm=True),
        (2,),
    ),
    (
        *('MMPretrainViT', 'mmpretrain.VisionTransformer'),
        VIT | dict(out_type='featmap', with_cls_token=False, out_indices=[0, -1]),
        (0, 2),
    ),
    ('MMPretrainViT', 'mmpretrain.DistilledVisionTransformer', VIT, (2,)),
    (
        *('MMPretrainViT', 'mmpretrain.ViTEVA02'),
        VIT | dict(final_norm=False, out_type='avg_featmap', sub_ln=True),
        (2,),
    ),
    ('MMPretrainViT', 'mmpretrain.ViTEVA02', VIT | dict(out_indices=[2]), (2,)),
    (
        *('MMPretrainViT', 'mmpretrain.VisionTransformer'),
        VIT | dict(layer_cfgs=dict(ffn_type='swiglu_fused'), layer_scale_init_value=1),
        (2,),
    ),
    ('MMPretrainViT', 'mmpretrain.DeiT3', VIT | dict(out_indices=[1, 2]), (1, 2)),
    ('MMPretrainViT', 'mmpretrain.BEiTViT', BEIT | dict(out_type='avg_featmap'), (2,)),
    (
        *('MMPretrainViT', 'mmpretrain.BEiTViT'),
        BEIT | dict(use_shared_rel_pos_bias=True, use_rel_pos_bias=False),
        (2,),
    ),
    ('MMViTSAM', 'mmpretrain.ViTSAM', SAM | dict(out_indices=[1, 2]), (1, 2)),
    (
        *('MMViTSAM', 'mmpretrain.ViTSAM'),
        SAM | dict(out_channels=0, out_type='avg_featmap'),
        (2,),
    ),
]
STAGED_CASES = [
    ('MMSwin', 'mmseg.SwinTransformer', SWIN, (1, 3, 6, 7)),
    ('MMSwin', 'mmdet.SwinTransformer', SWIN | dict(out_indices=(1, 2)), (3, 6)),
    ('MMSwin', 'mmpretrain.SwinTransformer', SWIN_CLS, (7,)),
    ('MMResNet', 'mmseg.ResNet', DEEP | dict(depth=18), (1, 3, 5, 7)),
    (
        *('MMResNet', 'mmseg.ResNetV1c'),
        DEEP | dict(strides=(1, 2, 1, 1), dilations=(1, 1, 2, 4), out_indices=(2, 3)),
        (12, 15),
    ),
    ('MMResNet', 'mmdet.ResNeXt', DEEP | dict(groups=2, out_indices=(2,)), (12,)),
    ('MMResNet', 'mmpretrain.ResNet', DEEP | dict(expansion=4), (15,)),
    ('MMConvNeXt', 'mmpretrain.ConvNeXt', CONVNEXT, (5,)),
    (
        *('MMConvNeXt', 'mmpretrain.ConvNeXt'),
        dict(
            arch=dict(depths=[1, 2], channels=[4, 8]),
            **dict(out_indices=(0, 1), gap_before_final_norm=False, use_grn=True),
        ),
        (0, 2),
    ),
    ('MMMiT', 'mmseg.MixVisionTransformer', MIT, (1, 2, 4, 5)),
    ('MMVAN', 'mmpretrain.VAN', dict(arch=VAN, out_indices=(0, 1, 2, 3)), (1, 2, 3, 4)),
    ('MMMSCAN', 'mmseg.MSCAN', MSCAN, (1, 2, 4, 5)),
    ('MMPVT', 'mmdet.PyramidVisionTransformer', PVT, (1, 2, 4, 5)),
    ('MMPVT', 'mmdet.PyramidVisionTransformerV2', PVT, (1, 2, 4, 5)),
    ('MMTwins', 'mmseg.PCPVT', TWINS | dict(norm_after_stage=True), (1, 2, 4, 5)),
    ('MMTwins', 'mmseg.SVT', TWINS | dict(windiow_sizes=[3] * 4), (1, 2, 4, 5)),
    (
        *('MMTwins', 'mmpretrain.PCPVT'),
        TWINS_CLS | dict(norm_after_stage=[False, False, True, True]),
        (1, 2, 4, 5),
    ),
    (
        *('MMTwins', 'mmpretrain.SVT'),
        dict(arch=TWINS | dict(window_sizes=[3] * 4)),
        (5,),
    ),
]


def build(kind, settings):
    package = kind.partition('.')[0]
    with MODELS.switch_scope_and_registry(package) as registry:
        return registry.build(dict(type=kind, **deepcopy(settings)))
