# Runtime of depth models, whose parts require mmsegmentation.
_base_ = ['./default_runtime.py']
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.depth_parts'], allow_failed_imports=False
)
