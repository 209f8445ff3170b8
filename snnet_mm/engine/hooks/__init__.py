"""Hooks; they only connect."""

from .label_check_hook import LabelCheckHook
from .stitch_init_hook import StitchInitHook
from .stitch_sampling_hook import StitchSamplingHook

__all__ = ['LabelCheckHook', 'StitchInitHook', 'StitchSamplingHook']
