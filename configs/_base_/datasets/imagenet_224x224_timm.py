# ImageNet-1K at 224x224 as timm's script trains ResNets by default: random crops, flips
# and colour jitter, nothing else. 8 GPUs, 128 images each.
_base_ = ['./imagenet_224x224_deit.py']
train_pipeline = [
    # The image, a random crop of it, a flip.
    *_base_.train_pipeline[:3],
    dict(type='ColorJitter', brightness=0.4, contrast=0.4, saturation=0.4),
    dict(type='PackInputs'),
]
train_dataloader = dict(dataset=dict(pipeline=train_pipeline))
