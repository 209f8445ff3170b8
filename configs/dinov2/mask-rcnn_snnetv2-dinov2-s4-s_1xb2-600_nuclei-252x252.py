# SN-Netv2 with DINOv2 ViT-S/14 and a fast anchor of its first four blocks on nuclei:
# the anchors and three SF stitches; for all 14 set kinds=('FS', 'SF', 'SFS', 'FSF') and
# sampler.ids=None. One CPU core, batch 2. No figure in the paper; not yet run:
# docs/explanation/experiments.md measures the pair with a distilled fast anchor.
_base_ = [
    '../_base_/models/mask-rcnn_vit_nuclei.py',
    '../_base_/datasets/nuclei_256x256.py',
    '../_base_/schedules/adamw_cosine.py',
    '../_base_/stitched_detection_runtime.py',
]
# A size that 14x14 patches divide: resize and crop in training, resize in tests.
image_size = (252, 252)
_base_.train_dataloader.dataset.pipeline[2].scale = image_size
_base_.train_dataloader.dataset.pipeline[3].crop_size = image_size
_base_.val_dataloader.dataset.pipeline[1].scale = image_size
_base_.test_dataloader.dataset.pipeline[1].scale = image_size
slow_checkpoint = 'work_dirs/nuclei-slow/iter_300.pth'
anchor = dict(
    type='PlainViT',
    img_size=image_size,
    patch_size=14,
    pos_embed_antialias=True,
    cls_token=False,
    layer_scale_init=1.0,
)
weights = dict(type='Pretrained', prefix='backbone.')
slow = dict(type='Pretrained', checkpoint=slow_checkpoint)
# All strides follow the patch size.
strides = [3.5, 7, 14, 28]
model = dict(
    data_preprocessor=dict(pad_size_divisor=252),
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
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
    ),
    neck=dict(
        in_channels=384,
        in_stride=14,
        strides=strides,
        init_cfg=dict(slow, prefix='neck.'),
    ),
    rpn_head=dict(
        anchor_generator=dict(strides=strides),
        init_cfg=dict(slow, prefix='rpn_head.'),
    ),
    roi_head=dict(
        bbox_roi_extractor=dict(featmap_strides=strides),
        mask_roi_extractor=dict(featmap_strides=strides),
        init_cfg=dict(slow, prefix='roi_head.'),
    ),
)
# The cut anchor has further to go than the slow one, which keeps its rate.
rates = {'anchors.0': dict(lr_mult=0.33), 'anchors.1': dict(lr_mult=0.1)}
optim_wrapper = dict(
    optimizer=dict(lr=3e-4),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, **rates)),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=50, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-6, begin=50, end=600, by_epoch=False),
]
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1, interval=100),
    # Draws the slow anchor twice as often as each other stitch, as on CamVid.
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='UniformSampler', ids=[0, 1, 1, 6, 7, 8]),
        input_size=image_size,
    ),
)
test_cfg = dict(input_size=image_size)
