# SN-Netv2 with DeiT3-B and DeiT3-L, 134 stitches, rank 4: DPT on NYUv2 (section 5.3,
# appendix C). 4 GPUs, batch 16. Paper: curve only. Ours: not yet run.
_base_ = [
    '../_base_/models/dpt_snnetv2-deit3-s-l.py',
    '../_base_/datasets/nyu_416x544.py',
    '../_base_/schedules/adamw_onecycle_24e.py',
    '../_base_/stitched_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
_base_.model.backbone.anchors[0].arch = 'base'
_base_.model.backbone.anchors[0].init_cfg = dict(
    type='Pretrained', checkpoint='checkpoints/deit_3_base_224_21k.pth'
)
test_cfg = dict(input_size=(480, 640))
# Every GPU draws its own stitch, as in the authors' trainings, which set no seed.
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=2, save_best='RMSE', rule='less'),
    stitch_sampling=dict(sampler=dict(per_rank=True)),
)
