# The runtime of depth models, which need classes of mmsegmentation.
_base_ = ['./default_runtime.py']
custom_imports = dict(
    imports=['snnet_mm', 'snnet_mm.tasks.depth_parts'], allow_failed_imports=False
)
