# SN-Netv2 with DINOv2-S, DINOv2-B and DINOv2-L, registers included, a chain of three,
# 267 stitches: SETR-naive on ADE20K. 8 GPUs, batch 16. No paper stitches DINOv2; the
# settings are ours. Not measured: not yet run.
_base_ = [
    '../../_base_/models/setr-naive_snnetv2.py',
    '../../_base_/datasets/ade20k_518x518.py',
    '../../_base_/schedules/adamw_poly_80k.py',
    '../../_base_/stitched_runtime.py',
]
norm_cfg = dict(type='SyncBN', requires_grad=True)
anchor = dict(type='TimmAnchor', pretrained=True, img_size=518, drop_path_rate=0.1)
auxiliary_head = dict(
    type='SETRUPHead',
    in_channels=1024,
    channels=256,
    num_classes=150,
    dropout_ratio=0,
    norm_cfg=norm_cfg,
    num_convs=2,
    kernel_size=1,
    align_corners=False,
    loss_decode=dict(type='CrossEntropyLoss', use_sigmoid=False, loss_weight=0.4),
)
model = dict(
    data_preprocessor=dict(size=(518, 518)),
    backbone=dict(
        anchors=[
            dict(model='vit_small_patch14_reg4_dinov2.lvd142m', **anchor),
            dict(model='vit_base_patch14_reg4_dinov2.lvd142m', **anchor),
            dict(model='vit_large_patch14_reg4_dinov2.lvd142m', **anchor),
        ],
        out_indices=(9, 14, 19, 23),
        # Only the auxiliary heads read the other maps.
        eval_maps=(3,),
    ),
    decode_head=dict(in_channels=1024, in_index=3, num_classes=150, norm_cfg=norm_cfg),
    auxiliary_head=[dict(in_index=i, **auxiliary_head) for i in range(3)],
    test_cfg=dict(mode='slide', crop_size=(518, 518), stride=(345, 345)),
)
