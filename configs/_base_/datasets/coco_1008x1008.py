# COCO 2017 with boxes and masks: the large-scale jitter with crops of 1008x1008, 72x72
# patches of 14 pixels, tested with the longer side at 1008.
_base_ = ['./coco_1024x1024.py']
image_size = (1008, 1008)
# RandomResize, RandomCrop and, in tests, Resize.
_base_.train_pipeline[3].scale = image_size
_base_.train_pipeline[4].crop_size = image_size
_base_.test_pipeline[1].scale = image_size
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
