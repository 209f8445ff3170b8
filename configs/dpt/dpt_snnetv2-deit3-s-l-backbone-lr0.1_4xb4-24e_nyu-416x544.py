# As dpt_snnetv2-deit3-s-l, with a tenth of the learning rate in the backbone, which the
# authors' settings specify but their scheduler undoes. 4 GPUs, batch 16. No figure in
# the paper; not yet run.
_base_ = ['./dpt_snnetv2-deit3-s-l_4xb4-24e_nyu-416x544.py']
optim_wrapper = dict(paramwise_cfg=dict(custom_keys=dict(backbone=dict(lr_mult=0.1))))
