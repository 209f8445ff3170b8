# Figure 6: SN-Netv1 of DeiT3-S and DeiT3-B on ImageNet-1K, 13 stitches, all with
# the classifier of DeiT3-B. 8 GPUs, batch 256. Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv1-deit3-s-l_8xb32-50e_in1k-224x224.py']
checkpoint = 'checkpoints/deit_3_base_224_21k.pth'
_base_.model.backbone.anchors[1].arch = 'base'
_base_.model.backbone.anchors[1].drop_path_rate = 0.15
_base_.model.backbone.anchors[1].init_cfg.checkpoint = checkpoint
_base_.model.head.anchor_heads[1].in_channels = 768
_base_.model.head.anchor_heads[1].init_cfg.checkpoint = checkpoint
