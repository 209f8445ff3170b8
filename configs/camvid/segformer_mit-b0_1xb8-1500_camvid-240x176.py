# mmseg's SegFormer on MiT-B0, trained from scratch and then made elastic.
# One CPU core, batch 8. No figure in the paper; measured: see README.md.
_base_ = [
    __import__('mmseg').__path__[0] + '/.mim/configs/_base_/models/segformer_mit-b0.py',
    '../_base_/datasets/camvid_240x176.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/default_runtime.py',
]
model = dict(
    data_preprocessor=dict(size=(176, 240)),
    decode_head=dict(num_classes=11, norm_cfg=dict(type='BN')),
)
default_hooks = dict(checkpoint=dict(max_keep_ckpts=1))
