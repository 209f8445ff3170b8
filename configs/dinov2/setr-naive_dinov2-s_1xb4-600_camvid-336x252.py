# The slow anchor of the pair on CamVid, trained further on images with twice as many
# pixels. One CPU core, batch 4. No figure in the paper; not yet run.
_base_ = './setr-naive_dinov2-s_1xb4-600_camvid-238x168.py'
checkpoint = 'work_dirs/camvid-slow/iter_600.pth'
crop_size = (252, 336)
scale = (336, 252)
model = dict(
    data_preprocessor=dict(size=crop_size),
    backbone=dict(
        img_size=crop_size,
        init_cfg=dict(checkpoint=checkpoint, prefix='backbone.', img_size=(168, 238)),
    ),
    decode_head=dict(
        init_cfg=dict(type='Pretrained', checkpoint=checkpoint, prefix='decode_head.')
    ),
)
_base_.train_dataloader.dataset.pipeline[2].scale = scale
_base_.train_dataloader.dataset.pipeline[3].crop_size = crop_size
_base_.val_dataloader.dataset.pipeline[1].scale = scale
_base_.test_dataloader.dataset.pipeline[1].scale = scale
