# DeiT-S alone on ImageNet-1K, an anchor of SN-Netv1. Its published weights are trained
# already. 8 GPUs, batch 1024. Paper: 79.8 top-1 at 4.6 GFLOPs. Ours: not yet run.
_base_ = ['./deit-ti_8xb128-50e_in1k-224x224.py']
checkpoint = 'checkpoints/deit_small_patch16_224-cd65a155.pth'
model = dict(backbone=dict(arch='small', init_cfg=dict(checkpoint=checkpoint)))
_base_.model.head.anchor_heads[0].in_channels = 384
_base_.model.head.anchor_heads[0].init_cfg.checkpoint = checkpoint
