# DeiT3-S alone: ViTDet's Mask R-CNN on COCO 2017 (SN-Netv2, appendix H). 8 GPUs,
# batch 8. Paper: 46.6 box AP. Ours: not yet run.
_base_ = ['../_base_/models/mask-rcnn_deit3-s.py', '../_base_/vitdet_100e.py']
optim_wrapper = dict(paramwise_cfg=dict(decay_rates=0.7))
