# Runtime for training and testing a stitched depth model.
_base_ = ['./stitched_runtime.py']
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.depth_parts'], allow_failed_imports=False
)
