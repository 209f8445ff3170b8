# HoloLens images at a size that DINOv2's patches divide, batch 4.
_base_ = ['./hololens_240x160.py']
scale = (252, 168)
crop_size = (126, 196)
_base_.train_dataloader.dataset.pipeline[2].scale = scale
_base_.train_dataloader.dataset.pipeline[5].crop_size = crop_size
_base_.val_dataloader.dataset.pipeline[1].scale = scale
_base_.test_dataloader.dataset.pipeline[1].scale = scale
train_dataloader = dict(batch_size=4)
