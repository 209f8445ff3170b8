# SN-Netv2 with DeiT3-S and DeiT3-L, 134 stitches: ViTDet's Mask R-CNN on COCO 2017
# (appendix H). 8 GPUs, batch 8. Paper: 42.9 box AP at the FLOPs of DeiT3-S, 51.2 at the
# FLOPs of DeiT3-L. Ours: not yet run.
_base_ = [
    '../_base_/models/mask-rcnn_deit3-l.py',
    '../_base_/datasets/coco_1024x1024.py',
    '../_base_/schedules/adamw_vitdet_100e.py',
    '../_base_/stitched_detection_runtime.py',
]
anchor = dict(
    type='PlainViT',
    img_size=1024,
    cls_token=False,
    window_size=14,
    decomposed_rel_pos=True,
)
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(
                arch=arch,
                global_blocks=blocks,
                drop_path_rate=rate,
                init_cfg=dict(
                    type='Pretrained',
                    checkpoint=f'checkpoints/deit_3_{arch}_224_21k.pth',
                ),
                **anchor,
            )
            for arch, blocks, rate in (
                ('small', (2, 5, 8, 11), 0.1),
                ('large', (5, 11, 17, 23), 0.4),
            )
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    )
)
optim_wrapper = dict(paramwise_cfg=dict(decay_rates=(0.7, 0.8)))
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='coco/bbox_mAP'),
    stitch_sampling=dict(input_size=(1024, 1024)),
)
test_cfg = dict(input_size=(1024, 1024))
