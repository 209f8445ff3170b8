# ImageNet-1K at 224x224 with the augmentation of timm's script, by which SN-Netv1
# trains ResNets: RandAugment, and random erasing with a probability of 0.6 in the
# second half of every batch. 8 GPUs, 128 images each.
_base_ = ['./imagenet_224x224_deit.py']
# RandomErasing, here of any image with half the probability.
_base_.train_pipeline[4].erase_prob = 0.6 / 2
train_dataloader = dict(
    sampler=dict(_delete_=True, type='SeededSampler', shuffle=True),
    dataset=dict(pipeline=_base_.train_pipeline),
)
