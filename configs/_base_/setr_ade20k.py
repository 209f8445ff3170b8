# SETR of SN-Netv2's authors on ADE20K: the schedule that their released configs
# effectively ran, 160k iterations of batch 16.
_base_ = ['./datasets/ade20k_512x512.py']
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=0.0005),
)
param_scheduler = [
    dict(type='PolyLR', eta_min=1e-4, power=0.9, begin=0, end=160000, by_epoch=False)
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=160000, val_interval=16000)
auto_scale_lr = dict(base_batch_size=16)
