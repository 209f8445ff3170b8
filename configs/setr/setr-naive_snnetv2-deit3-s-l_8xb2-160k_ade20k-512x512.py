# SN-Netv2 with DeiT3-S and DeiT3-L, 134 stitches: SETR-naive on ADE20K (table 1).
# 8 GPUs, batch 16. Paper: 45.6 - 51.4 mIoU at 34 - 363 GFLOPs. Ours: not yet run.
_base_ = [
    '../_base_/models/setr-naive_deit3-l.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/sgd_poly_160k.py',
    '../_base_/stitched_runtime.py',
]
anchor = dict(type='PlainViT', img_size=512, drop_path_rate=0.1)
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(
                arch='small',
                init_cfg=dict(
                    type='Pretrained', checkpoint='checkpoints/deit_3_small_224_21k.pth'
                ),
                **anchor,
            ),
            dict(
                arch='large',
                init_cfg=dict(
                    type='Pretrained', checkpoint='checkpoints/deit_3_large_224_21k.pth'
                ),
                **anchor,
            ),
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
        out_indices=(9, 14, 19, 23),
        # Only the auxiliary heads read the other maps.
        eval_maps=(3,),
    ),
)
