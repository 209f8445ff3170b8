# SN-Netv1 of Swin-Ti and S, 19 stitches in the first three stages: UPerNet on ADE20K
# with mmsegmentation's recipe for Swin. 8 GPUs, batch 16. No figure in the paper;
# not yet run.
_base_ = [
    '../_base_/models/upernet_swin-s.py',
    '../_base_/models/snnetv1_swin-ti-s.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/adamw_swin_160k.py',
    '../_base_/stitched_runtime.py',
]
swin = _base_.stitched_swin
anchors = [dict(anchor, drop_path_rate=0.3) for anchor in swin.anchors]
model = dict(backbone=dict(_delete_=True, **dict(swin, anchors=anchors)))
# Ten times the anchors' learning rate, which is the recipe's.
optim_wrapper = dict(paramwise_cfg=dict(lr_mults={'backbone.stitching_layers': 10.0}))
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
