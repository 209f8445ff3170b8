# ESTA on CUB-200-2011 without in-place distillation (figure 9b): the largest anchor is
# trained in every iteration, and teaches nothing. One GPU, batch 64. Paper: curve only.
# Ours: not yet run.
_base_ = ['./snnetv1-augreg-ti-s-b_1xb64-100e_cub-224x224.py']
model = dict(labels=None)
