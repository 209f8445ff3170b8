# SN-Netv1 of DeiT-Ti, S and B on ImageNet-1K, 71 stitches, with RegNetY-160 as the
# teacher (SN-Netv1, section 4.1). 8 GPUs, batch 1024. Paper: 70.6 - 81.9 top-1 at 1.3 -
# 17.6 GFLOPs. Ours: not yet run.
_base_ = ['./snnetv1-deit-ti-s-b-no-teacher_8xb128-50e_in1k-224x224.py']
model = dict(_delete_=True, type='DistillationWrapper', model=_base_.model)
