# CamVid at full resolution, 11 classes; images 480x360, resized to 480x352 (w x h),
# and 8k iterations of batch 8 for pretrained ViTs.
_base_ = ['./datasets/camvid_240x176.py', './schedules/adamw_cosine.py']
crop_size = (352, 480)
scale = (480, 352)
# RandomResize, RandomCrop and, in tests, Resize.
_base_.train_pipeline[2].scale = scale
_base_.train_pipeline[3].crop_size = crop_size
_base_.test_pipeline[1].scale = scale
train_dataloader = dict(num_workers=4, dataset=dict(pipeline=_base_.train_pipeline))
val_dataloader = dict(num_workers=4, dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
optim_wrapper = dict(optimizer=dict(lr=6e-5))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=500, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=500, end=8000, by_epoch=False),
]
train_cfg = dict(max_iters=8000, val_interval=2000)
