# SN-Netv2 with the encoders of Depth Anything V2-S and B, and B's head, 134 stitches,
# rank 4: DPT on NYUv2. 4 GPUs, batch 16. No paper stitches them; the schedule is that
# of SN-Netv2's DPT. Ours: not yet run. Weights: ../README.md#depth-anything.
_base_ = [
    '../../_base_/models/dpt_depth-anything-v2-s.py',
    '../../_base_/datasets/nyu_416x544.py',
    '../../_base_/schedules/adamw_onecycle_24e.py',
    '../../_base_/stitched_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
_base_.train_pipeline[5].crop_size = (420, 546)
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
checkpoint = 'checkpoints/depth_anything_v2_metric_hypersim_{}_mm.pth'
fast, slow = (
    dict(type='Pretrained', checkpoint=checkpoint.format(name), prefix='backbone.')
    for name in ('vits', 'vitb')
)
anchor = dict(type='TimmAnchor', img_size=518, final_norm=False)
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(model='vit_small_patch14_dinov2', init_cfg=fast, **anchor),
            dict(model='vit_base_patch14_dinov2', init_cfg=slow, **anchor),
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=4),
        out_indices=(2, 5, 8, 11),
    ),
    neck=dict(in_channels=[768] * 4, init_cfg=dict(slow, prefix='neck.')),
    decode_head=dict(
        in_channels=768,
        channels=128,
        post_process_channels=(96, 192, 384, 768),
        init_cfg=dict(slow, prefix='decode_head.'),
    ),
)
test_cfg = dict(input_size=(490, 644))
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='RMSE', rule='less'))
