# SN-Netv2 with DINOv2 ViT-S/14 and its first four blocks, each fine-tuned alone: the
# anchors and three SF stitches, the kind that is best on the validation images; for
# all 14 set kinds=('FS', 'SF', 'SFS', 'FSF') and sampler.ids=None. One CPU core, batch
# 4. No figure in the paper; measured by tools/research/pair.py:
# docs/explanation/experiments.md.
_base_ = [
    '../_base_/models/setr-naive_snnetv2.py',
    '../_base_/datasets/camvid_238x168.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/stitched_runtime.py',
]
fast_checkpoint = 'work_dirs/camvid-fast/iter_600.pth'
slow_checkpoint = 'work_dirs/camvid-slow/iter_600.pth'
anchor = dict(
    type='PlainViT',
    img_size=_base_.crop_size,
    patch_size=14,
    pos_embed_antialias=True,
    layer_scale_init=1.0,
)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    data_preprocessor=dict(size=_base_.crop_size),
    backbone=dict(
        kinds=('SF',),
        anchors=[
            dict(
                arch=dict(embed_dims=384, depth=4, num_heads=6),
                init_cfg=dict(checkpoint=fast_checkpoint, blocks=(0, 4), **weights),
                **anchor,
            ),
            dict(
                arch='small',
                init_cfg=dict(checkpoint=slow_checkpoint, **weights),
                **anchor,
            ),
        ],
    ),
    decode_head=dict(
        in_channels=384,
        channels=128,
        num_classes=11,
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='decode_head.'),
    ),
)
# Anchors keep the rates of their own trainings.
rates = {'anchors.0': dict(lr_mult=0.1), 'anchors.1': dict(lr_mult=0.03)}
optim_wrapper = dict(
    optimizer=dict(lr=1e-3),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, **rates)),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=1200, by_epoch=False),
]
train_cfg = dict(max_iters=1200, val_interval=1200)
default_hooks = dict(
    checkpoint=dict(interval=100, max_keep_ckpts=1),
    # Draws the slow anchor twice as often as each other stitch; otherwise it becomes
    # worse than trained alone.
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', ids=[0, 1, 1, 6, 7, 8])
    ),
)
