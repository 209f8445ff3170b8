# SN-Netv2 on the nuclei pair: 32 stitches, starting from the two trained anchors and
# the slow anchor's neck and heads. One CPU core, batch 2. No figure in the paper;
# measured: box AP 25.2 to 25.9 for the anchors, 21.0 to 24.5 between them, see
# ../small_scale.md.
_base_ = [
    '../../_base_/models/mask-rcnn_vit_nuclei.py',
    '../../_base_/datasets/nuclei_256x256.py',
    '../../_base_/schedules/adamw_cosine.py',
    '../../_base_/stitched_detection_runtime.py',
]
fast_checkpoint = 'work_dirs/mask-rcnn_vit-fast_1xb2-700_nuclei-256x256/iter_700.pth'
slow_checkpoint = 'work_dirs/mask-rcnn_vit-slow_1xb2-700_nuclei-256x256/iter_700.pth'
input_size = (256, 256)
anchor = dict(
    type='PlainViT',
    img_size=256,
    patch_size=8,
    cls_token=False,
    window_size=8,
    decomposed_rel_pos=True,
    layer_scale_init=None,
)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    backbone=dict(
        _delete_=True,
        type='SNNetv2',
        anchors=[
            dict(
                arch=dict(embed_dims=64, depth=6, num_heads=2),
                global_blocks=(2, 5),
                init_cfg=dict(weights, checkpoint=fast_checkpoint),
                **anchor,
            ),
            dict(
                arch=dict(embed_dims=128, depth=12, num_heads=4),
                global_blocks=(5, 11),
                drop_path_rate=0.1,
                init_cfg=dict(weights, checkpoint=slow_checkpoint),
                **anchor,
            ),
        ],
        stitching_layer=dict(type='LoRAStitchingLayer', rank=16),
    ),
    neck=dict(
        in_channels=128,
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='neck.'),
    ),
    rpn_head=dict(
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='rpn_head.')
    ),
    roi_head=dict(
        init_cfg=dict(weights, checkpoint=slow_checkpoint, prefix='roi_head.')
    ),
)
optim_wrapper = dict(optimizer=dict(lr=5e-4))
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=100, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=100, end=500, by_epoch=False),
]
train_cfg = dict(max_iters=500, val_interval=500)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1, interval=100),
    stitch_sampling=dict(sampler=dict(step=0.2e9), input_size=input_size),
)
test_cfg = dict(input_size=input_size)
