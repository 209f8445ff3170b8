# Figure 6: SN-Netv1 of DeiT3-B and DeiT3-L on ImageNet-1K, 13 stitches, all with
# the classifier of DeiT3-L. 8 GPUs, batch 256. Paper: curve only. Ours: not yet run.
_base_ = ['./snnetv1-deit3-s-l_8xb32-50e_in1k-224x224.py']
checkpoint = 'checkpoints/deit_3_base_224_21k.pth'
_base_.model.backbone.anchors[0].arch = 'base'
_base_.model.backbone.anchors[0].drop_path_rate = 0.15
_base_.model.backbone.anchors[0].init_cfg.checkpoint = checkpoint
