"""Images as one model takes them, as another one does."""

from __future__ import annotations

import torch
from mmengine.model import BaseDataPreprocessor
from torch import Tensor, nn


class Renormalisation(nn.Module):
    """Turns images preprocessed for one model into those for another.

    The same as undoing the one normalisation and doing the other, padding included:
    a pad value of 0 stays the mean of the first model.

    Args:
        source: The data preprocessor that the images come from.
        target: That of the model which they are for.
    """

    def __init__(
        self, source: BaseDataPreprocessor, target: BaseDataPreprocessor
    ) -> None:
        super().__init__()
        mean, std = _mean_and_std(source)
        target_mean, target_std = _mean_and_std(target)
        self.flip = _reverses_channels(source) != _reverses_channels(target)
        if self.flip:
            mean, std = mean.flip(0), std.flip(0)
        # In float64, so that equal ones cancel to the identity.
        self.register_buffer('scale', (std / target_std).float())
        self.register_buffer('shift', ((mean - target_mean) / target_std).float())

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images ``(B, C, H, W)`` anew."""
        images = images.flip(1) if self.flip else images
        return images * self.scale + self.shift


def _mean_and_std(preprocessor: BaseDataPreprocessor) -> tuple[Tensor, Tensor]:
    """Return them ``(C, 1, 1)``, in the order of channels that the model sees."""
    mean = getattr(preprocessor, 'mean', torch.zeros(1, 1, 1))
    std = getattr(preprocessor, 'std', torch.ones(1, 1, 1))
    return mean.double(), std.double()


def _reverses_channels(preprocessor: BaseDataPreprocessor) -> bool:
    """Return whether the order of channels is not that of the loaded images."""
    # mmengine's, mmsegmentation's and mmpretrain's name.
    keys = ('_channel_conversion', 'channel_conversion', 'to_rgb')
    return any(getattr(preprocessor, key, False) for key in keys)
