"""ESTA: biases or low-rank updates per stitch, and importance of stitches."""

from snnet_mm.utils.checkpoints import ADDED

from .importance import DEPLOYMENT, IMPORTANCE, ImportanceSampler, importance_results
from .stitch_parameters import StitchBiases, StitchLoRA

ADDED[r'(^|\.)stitch_(biases|lora)\.'] = 'model.backbone.plugins'
