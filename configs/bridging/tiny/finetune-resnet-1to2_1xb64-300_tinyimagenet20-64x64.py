# The tiny ResNet-50 without the blocks between its first stage and its second, all
# remaining weights trained, no adapter: the fine-tuning baseline of figure 3. One CPU
# core, batch 64. No figure in the paper; ours: measured, see ../small_scale.md.
_base_ = ['./finetune-resnet-1to4_1xb64-300_tinyimagenet20-64x64.py']
model = dict(backbone=dict(kept_blocks=[0, *range(3, 16)]))
