# ViTDet's Mask R-CNN as in detectron2, on DeiT3-L, for 80 classes and images padded to
# 1024x1024: patches of 16, windows of 14, layer norms of eps 1e-6, proposals assigned
# to the object that they overlap most.
_base_ = ['./mask-rcnn_vit.py']
norm_cfg = dict(type='MapLayerNorm', eps=1e-6)
model = dict(
    # Pads to the size of the position embeddings, in training and in tests.
    data_preprocessor=dict(pad_size_divisor=1024),
    backbone=dict(
        arch='large',
        img_size=1024,
        window_size=14,
        global_blocks=(5, 11, 17, 23),
        drop_path_rate=0.4,
        init_cfg=dict(
            type='Pretrained', checkpoint='checkpoints/deit_3_large_224_21k.pth'
        ),
    ),
    neck=dict(in_channels=1024, norm_cfg=norm_cfg),
    roi_head=dict(bbox_head=dict(norm_cfg=norm_cfg), mask_head=dict(norm_cfg=norm_cfg)),
    train_cfg=dict(rcnn=dict(assigner=dict(match_low_quality=False))),
)
