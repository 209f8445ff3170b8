# SN-Netv1 of two networks with stages on 20 classes of Tiny ImageNet, 600 iterations:
# uniform sampling, anchors at a tenth of the learning rate. The anchors are set by the
# configs that inherit it.
_base_ = [
    './models/cls_timm_stages.py',
    './datasets/tinyimagenet20_64x64.py',
    './schedules/adamw_cosine_cls_600.py',
    './stitched_cls_runtime.py',
]
optim_wrapper = dict(
    constructor='AnchorLayerDecayConstructor',
    paramwise_cfg=dict(
        _delete_=True,
        decay_rates=1.0,
        lr_mults={'backbone.anchors': 0.1, 'head.anchor_heads': 0.1},
    ),
)
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
