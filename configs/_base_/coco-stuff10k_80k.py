# One segmentor on COCO-Stuff-10K: data, 80k iterations of batch 16, runtime.
_base_ = [
    './datasets/coco-stuff10k_512x512.py',
    './schedules/sgd_poly_80k.py',
    './default_runtime.py',
]
