"""Hooks; they only connect."""

from .stitch_init_hook import StitchInitHook
from .stitch_sampling_hook import StitchSamplingHook

__all__ = ['StitchInitHook', 'StitchSamplingHook']
