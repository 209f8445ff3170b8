# SN-Netv2 with DeiT3-S and DeiT3-L at ViTDet's batch size: Mask R-CNN on COCO 2017.
# 8 GPUs, batch 64, blocks recomputed in the backward pass. No figure in the paper;
# not yet run.
_base_ = ['./mask-rcnn_snnetv2-deit3-s-l_8xb1-100e_coco-1024x1024.py']
anchors = [dict(anchor, with_cp=True) for anchor in _base_.model.backbone.anchors]
model = dict(backbone=dict(anchors=anchors))
train_dataloader = dict(batch_size=8)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=250, by_epoch=False),
    dict(type='MultiStepLR', milestones=[163889, 177546], gamma=0.1, by_epoch=False),
]
train_cfg = dict(max_iters=184375, val_interval=7375)
