# SN-Netv1 with DeiT3-S and DeiT3-L, 13 stitches: ViTDet's Mask R-CNN on COCO 2017. 8
# GPUs, batch 8. No figure in the paper; not yet run.
_base_ = ['./mask-rcnn_snnetv2-deit3-s-l_8xb1-100e_coco-1024x1024.py']
model = dict(
    backbone=dict(
        type='SNNetv1', stitching_layer=dict(_delete_=True, type='StitchingLayer')
    )
)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
