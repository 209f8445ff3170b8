# Swin-S alone, a slow anchor: UPerNet on ADE20K with mmsegmentation's recipe. 8 GPUs,
# batch 16. No figure in the paper; mmsegmentation's model zoo has 47.7 mIoU. Ours:
# not yet run.
_base_ = [
    '../_base_/models/upernet_swin-ti.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/adamw_swin_160k.py',
    '../_base_/default_runtime.py',
]
model = dict(
    backbone=dict(
        model='swin_small_patch4_window7_224',
        out_indices=(1, 3, 21, 23),
        init_cfg=dict(checkpoint='timm://swin_small_patch4_window7_224.ms_in1k'),
    )
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'))
