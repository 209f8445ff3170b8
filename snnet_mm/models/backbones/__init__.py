from .snnet_v2 import SNNetv2
from .stitched_backbone import StitchedBackbone

__all__ = ['SNNetv2', 'StitchedBackbone']
