# Ablation of ESTA on the tiny family: uniform sampling (paper, figure 6c). One CPU
# core, batch 64; measured: see ../small_scale.md.
_base_ = ['./esta-ti-s-b_1xb64-600_tinyimagenet20-64x64.py']
default_hooks = dict(
    stitch_sampling=dict(
        sampler=dict(_delete_=True, type='SandwichSampler', anchors='slowest')
    )
)
