# NYU Depth V2 with 420x546 crops: 30x39 patches of 14 pixels.
_base_ = ['./nyu_416x544.py']
# RandomCrop.
_base_.train_pipeline[5].crop_size = (420, 546)
train_dataloader = dict(dataset=dict(pipeline=_base_.train_pipeline))
