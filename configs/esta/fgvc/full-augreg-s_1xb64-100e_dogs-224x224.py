# AugReg-S alone on Stanford Dogs, trained in full: the first stage of SN-Net (ESTA,
# figure 3). One GPU, batch 64. Paper: curve only. Ours: not yet run.
_base_ = ['./lora-augreg-s_1xb64-100e_dogs-224x224.py']
model = dict(backbone=dict(lora=None))
