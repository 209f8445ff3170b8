# The tiny ResNet-50 without the blocks between its first stage and its last, all
# remaining weights trained, no adapter: the fine-tuning baseline of figure 3. One CPU
# core, batch 64. No figure in the paper; ours: measured, see ../small_scale.md.
_base_ = ['../../_base_/bridged_tiny.py', '../../_base_/cls_runtime.py']
model = dict(
    backbone=dict(
        _base_.resnet.anchor,
        _delete_=True,
        kept_blocks=[0, 3, 7, 13, 14, 15],
        out='end',
    ),
    head=dict(frozen=False, anchor_heads=[_base_.resnet.end]),
)
