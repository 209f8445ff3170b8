"""Normalisation of loaded images, by their test pipeline and the preprocessor.

``Normalize`` steps of the pipeline become part of graphs, like the mean and standard
deviation of the data preprocessor.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from mmengine.config import Config
from torch import Tensor

from snnet_mm.utils.configs import (
    inference_pipeline,
    model_config,
    step_name,
    takes_rgb,
)


class Normalization(NamedTuple):
    """Order, mean and standard deviation of the channels that a graph takes.

    ``reverses`` tells whether the order is not that of loaded images. Mean and standard
    deviation are None if images are not normalised.
    """

    reverses: bool
    mean: list[float] | None
    std: list[float] | None


def pipeline_of(cfg: Config) -> list[dict]:
    """Return the test pipeline from image files, empty without test data."""
    return inference_pipeline(cfg) if cfg.get('test_dataloader') else []


def split_normalize(pipeline: Sequence[Mapping]) -> tuple[list[dict], list[dict]]:
    """Return the ``Normalize`` steps that graphs include, and the other steps.

    After them, steps may only crop images: others, such as resizing or padding, change
    normalised pixels, and are left to the caller together with the normalisation.
    """
    folded, others = [], []
    for step in reversed(pipeline):
        name = step_name(step)
        if name == 'Normalize' and all(map(_keeps_pixels, others)):
            folded.insert(0, step)
        else:
            others.insert(0, step)
    return folded, others


def _keeps_pixels(step: Mapping) -> bool:
    """Return whether a step neither computes pixels nor adds any."""
    name = step_name(step)
    crops = name == 'CenterCrop' and not step.get('auto_pad')
    return crops or name.startswith(('Load', 'Pack'))


def normalization(cfg: Config) -> Normalization:
    """Return how a model's images are normalised, from images as mm loads them."""
    own = model_config(cfg).get('data_preprocessor') or {}
    steps = split_normalize(pipeline_of(cfg))[0]
    stages = [(step.get('to_rgb', True), step['mean'], step['std']) for step in steps]
    stages.append((takes_rgb(cfg), own.get('mean'), own.get('std')))
    reverses, mean, std = False, None, None
    for swaps, own_mean, own_std in stages:
        if swaps:
            reverses = not reverses
            mean, std = (values and values[::-1] for values in (mean, std))
        if mean is None:
            mean, std = own_mean, own_std
        elif own_mean is not None:
            mean = np.add(mean, np.multiply(std, own_mean)).tolist()
            std = np.multiply(std, own_std).tolist()
    return Normalization(reverses, mean, std)


def graph_order(cfg: Config, images: Tensor) -> Tensor:
    """Return loaded images ``(B, C, H, W)`` with their channels as graphs take them.

    mm only reverses the channels of images that have three.
    """
    reverses = images.shape[1] == 3 and normalization(cfg).reverses
    return images.flip(1) if reverses else images


def normalized(cfg: Config, images: Tensor) -> Tensor:
    """Return loaded images ``(B, C, H, W)`` as a model's data preprocessor takes them.

    These are those of :func:`test_set_of` after the ``Normalize`` steps it leaves out.
    """
    for step in split_normalize(pipeline_of(cfg))[0]:
        images = images.flip(1) if step.get('to_rgb', True) else images
        mean, std = (torch.tensor(step[key]).view(-1, 1, 1) for key in ('mean', 'std'))
        images = (images - mean) / std
    return images
