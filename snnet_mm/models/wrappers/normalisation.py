"""Images as one model takes them, as another one does."""

from __future__ import annotations

import torch
from mmengine.model import BaseDataPreprocessor
from torch import Tensor, nn


class Renormalisation(nn.Module):
    """Turns images preprocessed for one model into those for another.

    The same as undoing the normalisation of the data preprocessor ``source`` and doing
    that of ``target``, padding included: a pad value of 0 stays the mean of the first.
    """

    def __init__(
        self, source: BaseDataPreprocessor, target: BaseDataPreprocessor
    ) -> None:
        super().__init__()
        (mean, std, reverses), (target_mean, target_std, target_reverses) = map(
            _settings, (source, target)
        )
        self.flip = reverses != target_reverses
        if self.flip:
            mean, std = mean.flip(0), std.flip(0)
        # In float64, so that equal ones cancel to the identity.
        self.register_buffer('scale', (std / target_std).float())
        self.register_buffer('shift', ((mean - target_mean) / target_std).float())

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images ``(B, C, H, W)`` anew."""
        images = images.flip(1) if self.flip else images
        return images * self.scale + self.shift


def _settings(preprocessor: BaseDataPreprocessor) -> tuple[Tensor, Tensor, bool]:
    """Mean and std ``(C, 1, 1)`` as the model sees channels, and if it flips them."""
    mean = getattr(preprocessor, 'mean', torch.zeros(1, 1, 1))
    std = getattr(preprocessor, 'std', torch.ones(1, 1, 1))
    # mmengine's, mmsegmentation's and mmpretrain's name.
    keys = ('_channel_conversion', 'channel_conversion', 'to_rgb')
    reverses = any(getattr(preprocessor, key, False) for key in keys)
    return mean.double(), std.double(), reverses
