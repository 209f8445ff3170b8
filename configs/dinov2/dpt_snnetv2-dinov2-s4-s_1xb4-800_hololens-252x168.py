# SN-Netv2 with DINOv2 ViT-S/14 and a fast anchor of its first four blocks on the
# HoloLens images: the anchors and three SF stitches; for all 14 set kinds=('FS', 'SF',
# 'SFS', 'FSF') and sampler.ids=None. One CPU core, batch 4. No figure in the paper;
# not yet run: docs/explanation/experiments.md measures the pair with a distilled
# fast anchor.
_base_ = [
    '../_base_/models/dpt_vit.py',
    '../_base_/datasets/hololens_240x160.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/stitched_runtime.py',
]
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.mmseg'], allow_failed_imports=False
)
# A size that DINOv2's patches divide.
crop_size = (126, 196)
_base_.train_dataloader.dataset.pipeline[2].scale = (252, 168)
_base_.train_dataloader.dataset.pipeline[5].crop_size = crop_size
_base_.val_dataloader.dataset.pipeline[1].scale = (252, 168)
_base_.test_dataloader.dataset.pipeline[1].scale = (252, 168)
train_dataloader = dict(batch_size=4)
auto_scale_lr = dict(base_batch_size=4)
slow_checkpoint = 'work_dirs/hololens-slow/iter_400.pth'
anchor = dict(
    type='PlainViT',
    img_size=crop_size,
    patch_size=14,
    pos_embed_antialias=True,
    layer_scale_init=1.0,
)
weights = dict(type='Pretrained', prefix='backbone.')
head = dict(type='Pretrained', prefix='decode_head.')
model = dict(
    data_preprocessor=dict(
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        size=crop_size,
        test_cfg=dict(size_divisor=14),
    ),
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        with_cls=True,
        kinds=('SF',),
        anchors=[
            dict(
                arch=dict(embed_dims=384, depth=4, num_heads=6),
                init_cfg=dict(checkpoint=slow_checkpoint, blocks=(0, 4), **weights),
                **anchor,
            ),
            dict(
                arch='small',
                init_cfg=dict(checkpoint=slow_checkpoint, **weights),
                **anchor,
            ),
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
        out_indices=(2, 5, 8, 11),
        maps_of='end',
    ),
    # A head for each end anchor. Both start from the slow anchor's, which has learned
    # the scale already.
    decode_head=dict(
        type='PartPerAnchor',
        in_channels=384,
        channels=64,
        post_process_channels=(48, 96, 192, 384),
        loss_decode=dict(warm_up_iters=0),
        init_cfg=None,
        parts=[
            dict(
                type='DPTDepthHead', init_cfg=dict(checkpoint=slow_checkpoint, **head)
            ),
            dict(
                type='DPTDepthHead', init_cfg=dict(checkpoint=slow_checkpoint, **head)
            ),
        ],
    ),
)
# The cut anchor has further to go than the slow one, which keeps its rate.
rates = {'anchors.0': dict(lr_mult=0.33), 'anchors.1': dict(lr_mult=0.1)}
optim_wrapper = dict(
    optimizer=dict(lr=3e-4),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, **rates)),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=40, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=40, end=800, by_epoch=False),
]
train_cfg = dict(max_iters=800, val_interval=800)
default_hooks = dict(
    checkpoint=dict(interval=100, max_keep_ckpts=1),
    # Draws the slow anchor twice as often as each other stitch, as on CamVid.
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', ids=[0, 1, 1, 6, 7, 8])
    ),
)
test_cfg = dict(input_size=(168, 252))
