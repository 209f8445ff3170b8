# AugReg-S alone on CUB-200-2011, trained in full: the first stage of "adapt, then
# stitch" (ESTA, figure 6d). One GPU, batch 64. Paper: curve only. Ours: not yet run.
_base_ = ['./lora-augreg-s_1xb64-100e_cub-224x224.py']
model = dict(backbone=dict(lora=None))
