# ESTA on dense prediction: DeiT3-S and L stitched two ways, 134 stitches, on ADE20K.
# The large anchor teaches pixel by pixel. Rank times width is as in the paper's ViTs.
# Frozen anchors have no relative position biases, which would stay zero. 8 GPUs,
# batch 16. No figure in the paper. Ours: not yet run.
_base_ = [
    '../../_base_/models/setr-naive_snnetv2-deit3-s-l.py',
    '../../_base_/datasets/ade20k_512x512.py',
    '../../_base_/stitched_runtime.py',
]
ranks = (16, 6)
anchors = [
    dict(anchor, rel_pos_bias=False, lora=dict(rank=rank, alpha=rank))
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
# 1e-3 of the paper's grid, times batch / 256; a tenth of the iterations is warm-up.
optim_wrapper = dict(
    type='OptimWrapper',
    optimizer=dict(type='AdamW', lr=6.25e-5, betas=(0.9, 0.999), weight_decay=1e-4),
)
param_scheduler = [
    dict(type='LinearLR', start_factor=1e-3, begin=0, end=16000, by_epoch=False),
    dict(type='CosineAnnealingLR', eta_min=0, begin=16000, end=160000, by_epoch=False),
]
train_cfg = dict(type='IterBasedTrainLoop', max_iters=160000, val_interval=16000)
auto_scale_lr = dict(base_batch_size=16)
default_hooks = dict(
    checkpoint=dict(max_keep_ckpts=1),
    stitch_sampling=dict(
        sampler=dict(
            _delete_=True,
            type='SandwichSampler',
            anchors='slowest',
            sampler=dict(type='ImportanceSampler', warm_up=16000),
        )
    ),
)
