# DINOv2 on ADE20K, 150 classes: 518x518 crops, which are 37x37 patches of 14 pixels,
# for 80k iterations.
_base_ = ['./datasets/ade20k_512x512.py', './schedules/adamw_poly_80k.py']
crop_size = (518, 518)
scale = (2072, 518)
# RandomResize, RandomCrop and, in tests, Resize.
_base_.train_pipeline[2].scale = scale
_base_.train_pipeline[3].crop_size = crop_size
_base_.test_pipeline[1].scale = scale
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
val_dataloader = dict(dataset=dict(pipeline=_base_.test_pipeline))
test_dataloader = val_dataloader
