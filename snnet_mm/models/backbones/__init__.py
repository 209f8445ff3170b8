from .single_stitch import SingleStitch
from .snnet_v1 import SNNetv1
from .snnet_v2 import SNNetv2
from .stitched_backbone import StitchedBackbone

__all__ = ['SNNetv1', 'SNNetv2', 'SingleStitch', 'StitchedBackbone']
