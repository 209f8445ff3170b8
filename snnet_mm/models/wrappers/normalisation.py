"""Images as one model takes them, as another one does."""

from __future__ import annotations

from typing import NamedTuple

import torch
from mmengine.model import BaseDataPreprocessor
from torch import Tensor, nn


class Normalisation(NamedTuple):
    """What a data preprocessor makes of pixels from 0 to 255.

    Args:
        mean: Of every channel, ``(C, 1, 1)``, in the order that the model sees.
        std: Likewise.
        flipped: Whether the order of channels is not that of the loaded images.
    """

    mean: Tensor
    std: Tensor
    flipped: bool

    @classmethod
    def of(cls, preprocessor: BaseDataPreprocessor) -> Normalisation:
        """That of any mm package's data preprocessor."""
        neutral = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
        mean, std = (
            getattr(preprocessor, key, default)
            for key, default in zip(('mean', 'std'), neutral, strict=True)
        )
        # mmengine's, mmsegmentation's and mmpretrain's name.
        keys = ('_channel_conversion', 'channel_conversion', 'to_rgb')
        return cls(mean, std, any(getattr(preprocessor, k, False) for k in keys))


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
        a, b = Normalisation.of(source), Normalisation.of(target)
        self.flip = a.flipped != b.flipped
        mean, std = (x.flip(0) if self.flip else x for x in (a.mean, a.std))
        # In float64, so that equal ones cancel to the identity.
        mean, std, b_mean, b_std = (x.double() for x in (mean, std, b.mean, b.std))
        self.register_buffer('scale', (std / b_std).float())
        self.register_buffer('shift', ((mean - b_mean) / b_std).float())

    def forward(self, images: Tensor) -> Tensor:
        """Images ``(B, C, H, W)``."""
        images = images.flip(1) if self.flip else images
        return images * self.scale + self.shift
