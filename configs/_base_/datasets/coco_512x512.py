# COCO 2017 as in coco_1024x1024.py, at half the size.
_base_ = ['./coco_1024x1024.py']
image_size = (512, 512)
# RandomResize, RandomCrop and, in tests, Resize.
_base_.train_pipeline[3].scale = image_size
_base_.train_pipeline[4].crop_size = image_size
_base_.test_pipeline[1].scale = image_size
train_dataloader = dict(batch_size=8, dataset=dict(pipeline=_base_.train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
