# Swin-T without the blocks between its patch embedding and its last stage, all
# remaining weights trained, no adapter: the fine-tuning baseline of "Bridging Large
# Gaps" (figure 8), which keeps patch merging. 2 GPUs, batch 512. Paper: curve only.
# Ours: not yet run.
_base_ = ['./finetune-resnet50_2xb256-10e_in1k-224x224.py']
model = dict(
    backbone=dict(
        _base_.swin_t.anchor,
        _delete_=True,
        kept_blocks=[0, 3, 6, 13, 14, 15],
        out='end',
    ),
    head=dict(anchor_heads=[_base_.swin_t.end]),
)
