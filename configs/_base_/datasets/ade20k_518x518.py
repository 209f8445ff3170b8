# ADE20K, 150 classes, 518x518 crops: 37x37 patches of 14 pixels.
_base_ = ['./ade20k_512x512.py']
crop_size = (518, 518)
scale = (2072, 518)
# RandomResize, RandomCrop and, in tests, Resize.
_base_.train_pipeline[2].scale = scale
_base_.train_pipeline[3].crop_size = crop_size
_base_.test_pipeline[1].scale = scale
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
