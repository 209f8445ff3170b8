# SN-Netv2 of DeiT3-B and DeiT3-L on ImageNet-1K, 134 stitches (section 5.1).
# 8 GPUs, batch 256. Paper: curve only (figure 6). Ours: not yet run.
_base_ = ['./snnetv2-deit3-s-l_8xb32-50e_in1k-224x224.py']
fast_checkpoint = 'checkpoints/deit_3_base_224_21k.pth'
_base_.model.backbone.anchors[0].arch = 'base'
_base_.model.backbone.anchors[0].drop_path_rate = 0.15
_base_.model.backbone.anchors[0].init_cfg.checkpoint = fast_checkpoint
_base_.model.head.anchor_heads[0].in_channels = 768
_base_.model.head.anchor_heads[0].init_cfg.checkpoint = fast_checkpoint
