# SN-Netv1 classifiers of ImageNet-1K by DeiT's recipe, 50 epochs with batch 1024; the
# anchors are set by the configs that inherit it.
_base_ = [
    './models/cls_vit_in1k.py',
    './datasets/imagenet_224x224_deit.py',
    './schedules/adamw_cosine_50e.py',
    './snnetv1_in1k_runtime.py',
]
