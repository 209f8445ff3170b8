# Swin-Ti alone, a fast anchor: UPerNet on ADE20K with mmsegmentation's recipe. 8 GPUs,
# batch 16. No figure in the paper; mmsegmentation's model zoo has 44.4 mIoU. Ours:
# not yet run.
_base_ = [
    '../_base_/models/upernet_swin-ti.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/adamw_swin_160k.py',
    '../_base_/default_runtime.py',
]
default_hooks = dict(checkpoint=dict(max_keep_ckpts=2, save_best='mIoU'))
