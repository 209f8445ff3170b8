# Figure 11 (b) of the paper on the tiny family: two-way stitching, uniform sampling,
# layers fully trained. One CPU core, batch 64; measured: see ../small_scale.md.
_base_ = ['./snnetv2-ti-b-tws-ros_1xb64-600_tinyimagenet20-64x64.py']
default_hooks = dict(
    stitch_sampling=dict(sampler=dict(_delete_=True, type='UniformSampler'))
)
