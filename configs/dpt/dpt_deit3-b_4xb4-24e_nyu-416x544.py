# DeiT3-B alone: DPT on NYUv2 (figure 9). 4 GPUs, batch 16. Paper: curve only.
# Ours: not yet run.
_base_ = [
    '../_base_/models/dpt_deit3-l.py',
    '../_base_/datasets/nyu_416x544.py',
    '../_base_/schedules/adamw_onecycle_24e.py',
    '../_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
model = dict(
    backbone=dict(
        arch='base',
        out_indices=(2, 5, 8, 11),
        init_cfg=dict(checkpoint='checkpoints/deit_3_base_224_21k.pth'),
    ),
    decode_head=dict(in_channels=768),
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='RMSE', rule='less'))
