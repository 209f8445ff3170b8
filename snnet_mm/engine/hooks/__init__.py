"""Hooks; they only connect."""

from .exact_resume_hook import ExactResumeHook
from .label_check_hook import LabelCheckHook
from .stitch_checkpoint_hook import StitchCheckpointHook
from .stitch_init_hook import StitchInitHook
from .stitch_report_hook import StitchReportHook
from .stitch_sampling_hook import StitchSamplingHook
from .trainable_params_hook import TrainableParamsHook

__all__ = [
    'ExactResumeHook',
    'LabelCheckHook',
    'StitchCheckpointHook',
    'StitchInitHook',
    'StitchReportHook',
    'StitchSamplingHook',
    'TrainableParamsHook',
]
