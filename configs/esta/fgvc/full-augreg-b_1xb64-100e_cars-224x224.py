# AugReg-B alone on Stanford Cars, trained in full: the first stage of SN-Net (ESTA,
# figure 3). One GPU, batch 64. Paper: curve only. Ours: not yet run.
_base_ = ['./lora-augreg-b_1xb64-100e_cars-224x224.py']
model = dict(backbone=dict(lora=None))
