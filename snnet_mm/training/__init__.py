"""Training of stitches: samplers, hooks, exact resume and optimizer constructors."""

from .bf16_optim_wrapper import BF16OptimWrapper
from .checking_hooks import (
    LabelCheckHook,
    LossCheckHook,
    TrainableParamsHook,
)
from .layer_decay import AnchorLayerDecayConstructor
from .run import test, train
from .safe_training import ExactResumeHook, check_loop
from .samplers import (
    ResourceConstrainedSampler,
    SandwichSampler,
    StitchSampler,
    UniformSampler,
)
from .schedulers import GroupOneCycleLR, OneCycleMomentum
from .stitch_checkpoint_hook import StitchCheckpointHook
from .stitch_hooks import StitchInitHook, StitchReportHook, StitchSamplingHook
from .trial import try_test
