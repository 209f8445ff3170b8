"""ESTA: biases of every stitch, and importance."""

from snnet_mm.utils.checkpoints import ADDED

from .importance import DEPLOYMENT, IMPORTANCE, ImportanceSampler, importance_results
from .stitch_biases import StitchBiases

ADDED[r'(^|\.)stitch_biases\.'] = 'model.backbone.plugins'
