# CamVid at full resolution, 11 classes; images 480x360, resized to 480x352 (w x h).
_base_ = ['./camvid_240x176.py']
crop_size = (352, 480)
scale = (480, 352)
# RandomResize, RandomCrop and, in tests, Resize.
_base_.train_pipeline[2].scale = scale
_base_.train_pipeline[3].crop_size = crop_size
_base_.test_pipeline[1].scale = scale
train_dataloader = dict(num_workers=4, dataset=dict(pipeline=_base_.train_pipeline))
val_dataloader = dict(num_workers=4, dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
