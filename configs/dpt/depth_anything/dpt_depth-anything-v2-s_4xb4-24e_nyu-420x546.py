# Depth Anything V2-S, the metric model for indoor images: fine-tuned on NYUv2, or made
# elastic as it is. 4 GPUs, batch 16. No paper has this training; its schedule is that
# of SN-Netv2's DPT. Ours: not yet run. Weights: ../README.md#depth-anything.
_base_ = [
    '../../_base_/models/dpt_depth-anything-v2-s.py',
    '../../_base_/datasets/nyu_416x544.py',
    '../../_base_/schedules/adamw_onecycle_24e.py',
    '../../_base_/default_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
_base_.train_pipeline[5].crop_size = (420, 546)
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
model = dict(
    init_cfg=dict(
        type='Pretrained',
        checkpoint='checkpoints/depth_anything_v2_metric_hypersim_vits_mm.pth',
    )
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='RMSE', rule='less'))
