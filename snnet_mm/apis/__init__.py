"""What a user's own code calls."""

from snnet_mm.analysis import cost_table
from snnet_mm.models import find_stitched_backbone, set_stitch

__all__ = ['cost_table', 'find_stitched_backbone', 'set_stitch']
