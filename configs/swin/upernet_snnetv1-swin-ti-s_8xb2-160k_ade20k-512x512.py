# SN-Netv1 of Swin-Ti and S, 19 stitches in the first three stages: UPerNet on ADE20K
# with mmsegmentation's recipe for Swin. 8 GPUs, batch 16. No figure in the paper;
# not yet run.
_base_ = [
    '../_base_/models/upernet_swin-ti.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/adamw_swin_160k.py',
    '../_base_/stitched_runtime.py',
]
anchors = [
    dict(
        type='TimmStageAnchor',
        model=f'swin_{size}_patch4_window7_224',
        img_size=512,
        drop_path_rate=0.3,
        init_cfg=dict(
            type='Pretrained',
            checkpoint=f'timm://swin_{size}_patch4_window7_224.ms_in1k',
        ),
    )
    for size in ('tiny', 'small')
]
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv1',
        anchors=anchors,
        stages=(0, 1, 2),
        out_indices=(1, 3, 21, 23),
    )
)
# Ten times the anchors' learning rate, which is the recipe's.
optim_wrapper = dict(paramwise_cfg=dict(lr_mults={'backbone.stitching_layers': 10.0}))
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'),
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler')),
)
