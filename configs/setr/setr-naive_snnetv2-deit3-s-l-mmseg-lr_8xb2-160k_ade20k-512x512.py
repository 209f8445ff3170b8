# SN-Netv2 with DeiT3-S and DeiT3-L on ADE20K, with mmseg's SETR optimizer settings,
# which the authors' config file specifies but never applies: no weight decay, heads
# x10. 8 GPUs, batch 16. No figure in the paper. Ours: not yet run.
_base_ = ['./setr-naive_snnetv2-deit3-s-l_8xb2-160k_ade20k-512x512.py']
optim_wrapper = dict(
    optimizer=dict(weight_decay=0.0),
    paramwise_cfg=dict(custom_keys=dict(head=dict(lr_mult=10.0))),
)
