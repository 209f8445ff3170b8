# SN-Netv2 with DINOv2-S and DINOv2-B, 134 stitches: ViTDet's Mask R-CNN on COCO 2017.
# 8 GPUs, batch 8. No paper stitches DINOv2; settings as for DeiT3 in SN-Netv2,
# appendix H. Ours: not yet run. Patches of 14 pixels give a grid of 72x72, windows of
# 12x12, and a pyramid of strides 3.5 to 56. Windows cannot contain prefix tokens, so
# the weights have no registers, and the cls token is omitted.
_base_ = [
    '../../_base_/models/mask-rcnn_deit3-l.py',
    '../../_base_/datasets/coco_1024x1024.py',
    '../../_base_/schedules/adamw_vitdet_100e.py',
    '../../_base_/stitched_detection_runtime.py',
]
# The large-scale jitter with crops of 1008x1008, 72x72 patches of 14 pixels:
# RandomResize, RandomCrop and, in tests, Resize.
_base_.train_dataloader.dataset.pipeline[3].scale = (1008, 1008)
_base_.train_dataloader.dataset.pipeline[4].crop_size = (1008, 1008)
_base_.val_dataloader.dataset.pipeline[1].scale = (1008, 1008)
_base_.test_dataloader.dataset.pipeline[1].scale = (1008, 1008)
strides = [3.5, 7, 14, 28, 56]
anchor = dict(
    type='PlainViT',
    img_size=1008,
    patch_size=14,
    pos_embed_antialias=True,
    cls_token=False,
    window_size=12,
    global_blocks=(2, 5, 8, 11),
    decomposed_rel_pos=True,
    drop_path_rate=0.1,
)
model = dict(
    data_preprocessor=dict(pad_size_divisor=1008),
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(
                arch=arch,
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint=f'timm://vit_{arch}_patch14_dinov2.lvd142m',
                ),
                **anchor,
            )
            for arch in ('small', 'base')
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    ),
    neck=dict(in_channels=768, in_stride=14, strides=strides),
    rpn_head=dict(anchor_generator=dict(strides=strides)),
    roi_head=dict(
        bbox_roi_extractor=dict(featmap_strides=strides[:4]),
        mask_roi_extractor=dict(featmap_strides=strides[:4]),
    ),
)
optim_wrapper = dict(paramwise_cfg=dict(decay_rates=0.7))
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='coco/bbox_mAP'),
    stitch_sampling=dict(input_size=(1008, 1008)),
)
test_cfg = dict(input_size=(1008, 1008))
