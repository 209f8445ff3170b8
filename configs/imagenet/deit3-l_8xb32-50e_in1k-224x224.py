# DeiT3-L alone on ImageNet-1K, an anchor of SN-Netv2. Its published weights are
# finetuned already. 8 GPUs, batch 256. DeiT3's paper: 87.0 top-1 at 61.6 GFLOPs. Ours:
# not yet run.
_base_ = ['./deit3-s_8xb32-50e_in1k-224x224.py']
checkpoint = 'checkpoints/deit_3_large_224_21k.pth'
model = dict(
    backbone=dict(
        arch='large', drop_path_rate=0.4, init_cfg=dict(checkpoint=checkpoint)
    )
)
_base_.model.head.anchor_heads[0].in_channels = 1024
_base_.model.head.anchor_heads[0].init_cfg.checkpoint = checkpoint
