# AugReg-B alone on CUB-200-2011, trained by LoRA: a star of figure 3 (ESTA). One GPU,
# batch 64, 8500 iterations. Paper: curve only. Ours: not yet run.
_base_ = ['./lora-augreg-ti_1xb64-100e_cub-224x224.py']
checkpoint = 'checkpoints/vit_base_patch16_224.augreg_in21k.bin'
_base_.model.head.anchor_heads[0].in_channels = 768
model = dict(
    backbone=dict(
        arch='base', lora=dict(rank=8, alpha=8), init_cfg=dict(checkpoint=checkpoint)
    )
)
