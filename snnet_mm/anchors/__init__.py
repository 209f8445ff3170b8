"""Networks to stitch: the anchor contract, plain ViTs, networks of timm and mm."""

from . import mm_families  # registers types
from .base import (
    Anchor,
    BackboneMap,
    TokenState,
    check_outputs,
    check_tokens_correspond,
    layer_depth_among,
)
from .blockwise import (
    BlockwiseAnchor,
    Family,
    NetworkFamily,
    family_of,
    image_channels,
    map_of,
    register_family,
    run_on_map,
    run_with_grid,
)
from .branch_view import BranchView, NetworkStep
from .branches import Branch
from .low_rank import LowRankUpdate
from .plain_vit import PlainViT
from .timm_anchor import PlainFamily, TimmAnchor
from .timm_stage_anchor import (
    NetworkParts,
    StagedFamily,
    TimmStageAnchor,
    downsampling_first,
)
