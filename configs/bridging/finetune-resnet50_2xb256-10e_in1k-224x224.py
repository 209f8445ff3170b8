# ResNet-50 without the blocks between its first stage and its last, all remaining
# weights trained, no adapter: the fine-tuning baseline of "Bridging Large Gaps"
# (figures 3, 5 and 8), which keeps the blocks that reduce the grid. For other gaps set
# kept_blocks: ./README.md. 2 GPUs, batch 512. The learning rate is the lowest of three;
# the paper takes the best for every gap. Paper: curve only. Ours: not yet run.
_base_ = ['../_base_/bridged_in1k.py', '../_base_/cls_runtime.py']
model = dict(
    backbone=dict(
        _base_.resnet50.anchor,
        _delete_=True,
        kept_blocks=[0, 3, 7, 13, 14, 15],
        out='end',
    ),
    head=dict(frozen=False, anchor_heads=[_base_.resnet50.end]),
)
optim_wrapper = dict(optimizer=dict(lr=2e-4))
