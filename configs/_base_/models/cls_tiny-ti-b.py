# A classifier of 20 classes on the fastest and the slowest ViT of
# configs/imagenet/tiny, with their weights; how they are stitched is set by the configs
# that inherit it.
ti_checkpoint = 'work_dirs/vit-ti_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
b_checkpoint = 'work_dirs/vit-b_1xb64-1000_tinyimagenet20-64x64/iter_1000.pth'
anchor = dict(type='PlainViT', img_size=64, patch_size=16, layer_scale_init=None)
weights = dict(type='Pretrained', prefix='backbone.')
model = dict(
    type='ImageClassifier',
    data_preprocessor=dict(
        type='ClsDataPreprocessor',
        mean=[123.675, 116.28, 103.53],
        std=[58.395, 57.12, 57.375],
        to_rgb=True,
    ),
    backbone=dict(
        type=None,
        out='end',
        anchors=[
            dict(
                arch=dict(embed_dims=32, depth=6, num_heads=1),
                init_cfg=dict(weights, checkpoint=ti_checkpoint),
                **anchor,
            ),
            dict(
                arch=dict(embed_dims=128, depth=6, num_heads=4),
                drop_path_rate=0.1,
                init_cfg=dict(weights, checkpoint=b_checkpoint),
                **anchor,
            ),
        ],
    ),
    head=dict(
        type='StitchedClsHead',
        num_classes=20,
        loss=dict(type='LabelSmoothLoss', label_smooth_val=0.1, mode='original'),
        anchor_heads=[
            dict(
                in_channels=dim,
                init_cfg=dict(weights, checkpoint=file, prefix='head.anchor_heads.0.'),
            )
            for dim, file in ((32, ti_checkpoint), (128, b_checkpoint))
        ],
    ),
)
