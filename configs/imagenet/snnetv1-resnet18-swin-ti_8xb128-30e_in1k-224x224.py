# SN-Netv1 of ResNet-18 and Swin-Ti on ImageNet-1K, 8 stitches in the second and third
# stage, with RegNetY-160 as the teacher (SN-Netv1, section 4.1). 8 GPUs, batch 1024.
# Paper: 68.7 - 81.3 top-1 at 1.8 - 4.5 GFLOPs (the authors' published file).
# Ours: not yet run.
_base_ = ['./snnetv1-resnet18-swin-ti-no-teacher_8xb128-30e_in1k-224x224.py']
model = dict(_delete_=True, type='DistillationWrapper', model=_base_.model)
