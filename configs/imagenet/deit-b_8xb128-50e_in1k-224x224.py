# DeiT-B alone on ImageNet-1K, an anchor of SN-Netv1. Its published weights are trained
# already. 8 GPUs, batch 1024. Paper: 81.8 top-1 at 17.6 GFLOPs. Ours: not yet run.
_base_ = ['./deit-ti_8xb128-50e_in1k-224x224.py']
checkpoint = 'checkpoints/deit_base_patch16_224-b5f2ef4d.pth'
model = dict(backbone=dict(arch='base', init_cfg=dict(checkpoint=checkpoint)))
_base_.model.head.anchor_heads[0].in_channels = 768
_base_.model.head.anchor_heads[0].init_cfg.checkpoint = checkpoint
