# SN-Netv1 of Swin-Ti, S and B of ImageNet-22K on ImageNet-1K, 41 stitches in the first
# three stages, with RegNetY-160 as the teacher (SN-Netv1, section 4.1). 8 GPUs, batch
# 1024. Paper: 79.5 - 84.2 top-1 at 4.5 - 15.5 GFLOPs (the authors' published file).
# Ours: not yet run.
_base_ = ['./snnetv1-swin-ti-s-b-no-teacher_8xb128-50e_in1k-224x224.py']
model = dict(_delete_=True, type='DistillationWrapper', model=_base_.model)
