# ESTA on the tiny family: 35 stitches, trained by low-rank updates and biases per
# stitch, sampled by importance, taught by the largest anchor. Ranks have the ratios of
# the paper. One CPU core, batch 64; measured: see ../small_scale.md.
_base_ = ['../../imagenet/tiny/snnetv1-ti-s-b_1xb64-600_tinyimagenet20-64x64.py']
ranks = (8, 4, 2)
anchors = [
    dict(anchor, lora=dict(rank=rank, alpha=rank))
    for anchor, rank in zip(_base_.model.backbone.anchors, ranks, strict=True)
]
classifier = dict(
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
    _delete_=True, type='SandwichWrapper', labels='hard', alpha=0.5, model=classifier
)
optim_wrapper = dict(optimizer=dict(lr=2e-3, weight_decay=1e-4), clip_grad=None)
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(
            _delete_=True,
            type='SandwichSampler',
            anchors='slowest',
            sampler=dict(type='ImportanceSampler', warm_up=100, num_groups=10),
        )
    )
)
