# CamVid at a size that DINOv2's patches divide, batch 4.
_base_ = ['./camvid_240x176.py']
scale = (238, 168)
crop_size = scale[::-1]
_base_.train_dataloader.dataset.pipeline[2].scale = scale
_base_.train_dataloader.dataset.pipeline[3].crop_size = crop_size
_base_.val_dataloader.dataset.pipeline[1].scale = scale
_base_.test_dataloader.dataset.pipeline[1].scale = scale
train_dataloader = dict(batch_size=4)
auto_scale_lr = dict(base_batch_size=4)
