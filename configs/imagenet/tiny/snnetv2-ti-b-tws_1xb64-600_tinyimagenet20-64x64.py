# Figure 11 (b) of the paper on the tiny family: two-way stitching, uniform sampling,
# layers fully trained. One CPU core, batch 64; measured: see README.md.
_base_ = ['./snnetv2-ti-b-tws-ros_1xb64-600_tinyimagenet20-64x64.py']
_base_.custom_hooks[1].sampler = dict(type='UniformSampler')
