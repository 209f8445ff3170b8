# DeiT3-L trained by LoRA alone on COCO-Stuff-10K (table 3); updates as in the authors'
# released lora.py and in the stitched config. 8 GPUs, batch 16. Paper: 44.8 mIoU at 363
# GFLOPs. Ours: not yet run.
_base_ = ['./setr-naive_deit3-l_8xb2-80k_coco-stuff10k-512x512.py']
model = dict(backbone=dict(lora=dict(rank=4, alpha=1, targets='all')))
