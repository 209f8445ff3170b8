# One segmentor on ADE20K: data, 160k iterations of batch 16, runtime.
_base_ = [
    './datasets/ade20k_512x512.py',
    './schedules/sgd_poly_160k.py',
    './default_runtime.py',
]
