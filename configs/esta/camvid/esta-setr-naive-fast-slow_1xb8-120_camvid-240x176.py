# ESTA on dense prediction: the CamVid pair, 32 two-way stitches, trained by low-rank
# updates and biases per stitch; the slow anchor teaches pixel by pixel. One CPU core,
# batch 8. No figure in the paper; ours: measured, see ../README.md.
_base_ = ['../../camvid/setr-naive_snnetv2-fast-slow_1xb8-1500_camvid-240x176.py']
ranks = (8, 4)
anchors = [
    dict(anchor, lora=dict(rank=rank, alpha=rank))
    for anchor, rank in zip(_base_.model.backbone.anchors, ranks, strict=True)
]
segmentor = dict(
    _base_.model,
    backbone=dict(
        _base_.model.backbone,
        anchors=anchors,
        stitching_layer=dict(
            type='LoRAStitchingLayer', rank=0.25, alpha=None, train_bias=False
        ),
        plugins=dict(stitch_biases=dict(type='StitchBiases')),
    ),
)
model = dict(
    _delete_=True, type='SandwichWrapper', labels='hard', alpha=0.5, model=segmentor
)
optim_wrapper = dict(optimizer=dict(lr=2e-3, weight_decay=1e-4), clip_grad=None)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=12, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=1e-5, begin=12, end=120, by_epoch=False),
]
train_cfg = dict(max_iters=120, val_interval=120)
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(
            _delete_=True,
            type='SandwichSampler',
            anchors='slowest',
            sampler=dict(type='ImportanceSampler', warm_up=40, num_groups=10),
        )
    ),
    stitch_statistics=dict(num_images=200),
)
