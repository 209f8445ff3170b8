# Bridges between two networks on ImageNet-1K, 10 epochs with batch 512.
_base_ = [
    './models/bridged_in1k.py',
    './datasets/imagenet_224x224_autoaugment.py',
    './schedules/adamw_cosine_10e_bridge.py',
    './bridged_cls_runtime.py',
]
