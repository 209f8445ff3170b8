"""Training of stitches: samplers, hooks, exact resume and optimizer constructors."""

from .bf16_optim_wrapper import BF16OptimWrapper
from .checking_hooks import LossCheckHook
from .exact_resume_hook import ExactResumeHook
from .layer_decay import AnchorLayerDecayConstructor
from .run import test, train
from .samplers import (
    ResourceConstrainedSampler,
    SandwichSampler,
    StitchSampler,
    UniformSampler,
)
from .schedulers import GroupOneCycleLR, OneCycleMomentum
from .statistics_hook import StitchStatisticsHook
from .stitch_checkpoint_hook import StitchCheckpointHook
from .stitch_hooks import StitchInitHook, StitchReportHook, StitchSamplingHook
from .training_check import TrainingCheckHook
from .trial import try_test
