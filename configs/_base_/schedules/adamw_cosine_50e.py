# 50 epochs of ImageNet-1K with batch 1024: AdamW and DeiT's settings with the learning
# rate of SN-Netv1, warm-up from a thousandth of it, a cosine to a hundredth, in
# mixed precision.
_base_ = ['./lamb_cosine_50e.py']
optim_wrapper = dict(
    optimizer=dict(
        _delete_=True, type='AdamW', lr=1e-4, betas=(0.9, 0.999), weight_decay=0.05
    )
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=6260, by_epoch=False),
    dict(
        type='CosineAnnealingLR',
        eta_min_ratio=1e-2,
        begin=6260,
        end=62600,
        by_epoch=False,
    ),
]
train_cfg = dict(max_iters=62600, val_interval=6260)
