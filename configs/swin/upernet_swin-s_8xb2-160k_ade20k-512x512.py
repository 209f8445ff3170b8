# Swin-S alone, a slow anchor: UPerNet on ADE20K with mmsegmentation's recipe. 8 GPUs,
# batch 16. No figure in the paper; mmsegmentation's model zoo has 47.7 mIoU. Ours:
# not yet run.
_base_ = [
    '../_base_/models/upernet_swin-s.py',
    '../_base_/datasets/ade20k_512x512.py',
    '../_base_/schedules/adamw_swin_160k.py',
    '../_base_/default_runtime.py',
]
