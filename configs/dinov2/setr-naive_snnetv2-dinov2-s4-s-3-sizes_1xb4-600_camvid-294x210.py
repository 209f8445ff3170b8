# The pair of setr-naive_snnetv2-dinov2-s4-s_1xb4-1200_camvid-238x168.py trained at
# three input sizes, one drawn per step. One CPU core, batch 4. No figure in the paper;
# not yet run: docs/explanation/experiments_sizes.md measures an earlier fast anchor.
_base_ = './setr-naive_snnetv2-dinov2-s4-s_1xb4-1200_camvid-238x168.py'
crop_size = (210, 294)
scale = (294, 210)
model = dict(
    data_preprocessor=dict(size=crop_size),
    backbone=dict(kinds=('FS', 'SF', 'SFS', 'FSF')),
)
_base_.train_dataloader.dataset.pipeline[2].scale = scale
_base_.train_dataloader.dataset.pipeline[3].crop_size = crop_size
_base_.val_dataloader.dataset.pipeline[1].scale = scale
_base_.test_dataloader.dataset.pipeline[1].scale = scale
_base_.param_scheduler[1].end = 600
train_cfg = dict(max_iters=600, val_interval=600)
default_hooks = dict(
    stitch_sampling=dict(
        sizes=[(126, 182), (168, 238), (210, 294)],
        sampler=dict(_delete_=True, type='ResourceConstrainedSampler', step=0.6e9),
    ),
)
# As in the measured run, whose anchors were trained at one learning rate.
exempt = dict(pos_embed=dict(decay_mult=0), cls_token=dict(decay_mult=0))
optim_wrapper = dict(
    optimizer=dict(lr=3e-5),
    paramwise_cfg=dict(custom_keys=dict(_delete_=True, **exempt)),
)
