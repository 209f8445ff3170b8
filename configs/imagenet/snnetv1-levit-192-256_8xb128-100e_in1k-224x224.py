# SN-Netv1 of LeViT-192 and 256 on ImageNet-1K, 8 stitches in the first two stages, with
# RegNetY-160 as the teacher (SN-Netv1, appendix G). 8 GPUs, batch 1024. Paper: 79.4 -
# 81.2 top-1 at 0.66 - 1.13 GFLOPs (the authors' published file). Ours: not yet run.
_base_ = ['./snnetv1-levit-192-256-no-teacher_8xb128-100e_in1k-224x224.py']
model = dict(_delete_=True, type='DistillationWrapper', model=_base_.model)
