# ImageNet-1K at 224x224 as SN-Netv1 trains ResNets on it by timm's script: RandAugment,
# and random erasing with a probability of 0.6 in the second half of every batch. 8
# GPUs, 128 images each.
_base_ = ['./imagenet_224x224_deit.py']
# RandomErasing, which here may be of any image.
_base_.train_pipeline[4].erase_prob = 0.6 / 2
train_dataloader = dict(
    sampler=dict(_delete_=True, type='SeededSampler', shuffle=True),
    dataset=dict(pipeline=_base_.train_pipeline),
)
