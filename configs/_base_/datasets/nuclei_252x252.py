# Nuclei at a size that 14x14 patches divide.
_base_ = ['./nuclei_256x256.py']
image_size = (252, 252)
# Resize and crop in training, resize in tests.
_base_.train_dataloader.dataset.pipeline[2].scale = image_size
_base_.train_dataloader.dataset.pipeline[3].crop_size = image_size
_base_.val_dataloader.dataset.pipeline[1].scale = image_size
_base_.test_dataloader.dataset.pipeline[1].scale = image_size
