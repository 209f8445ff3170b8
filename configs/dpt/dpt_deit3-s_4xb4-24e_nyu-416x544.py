# DeiT3-S alone: DPT on NYUv2 (figure 9). 4 GPUs, batch 16. Paper: curve only.
# Ours: not yet run.
_base_ = ['../_base_/models/dpt_deit3-s.py', '../_base_/nyu_24e.py']
