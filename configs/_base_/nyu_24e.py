# One depth model on NYUv2: data, 24 epochs of batch 16, runtime.
_base_ = [
    './datasets/nyu_416x544.py',
    './schedules/adamw_onecycle_24e.py',
    './depth_runtime.py',
]
