"""Transforms of images with depth maps, from SN-Netv2's training on NYUv2."""

from collections.abc import Sequence

import numpy as np
from mmcv.transforms import BaseTransform
from mmseg.registry import TRANSFORMS

from snnet_mm.utils import check


@TRANSFORMS.register_module()
class FixedCrop(BaseTransform):
    """Crops every image and its maps to the same rows and columns.

    Args:
        rows, cols: Half-open ranges, in pixels.
    """

    def __init__(self, rows: Sequence[int], cols: Sequence[int]) -> None:
        self.box = slice(*rows), slice(*cols)

    def transform(self, results: dict) -> dict:
        """Crop ``img`` (H, W, 3) and all ``seg_fields`` (H, W)."""
        shape, ends = results['img'].shape[:2], [side.stop for side in self.box]
        fits = all(end <= side for end, side in zip(ends, shape, strict=True))
        check(fits, 'FixedCrop.rows, cols', ends, f'a crop inside the image, {shape}')
        for key in ('img', *results.get('seg_fields', ())):
            results[key] = results[key][self.box]
        results['img_shape'] = results['img'].shape[:2]
        return results


@TRANSFORMS.register_module()
class RandomGammaColor(BaseTransform):
    """Randomly changes gamma, brightness and colour of an image, in this order.

    As in the authors' code, gamma is the exponent of values from 0 to 255, so it
    brightens or darkens by half. Brightness scales all channels, colour each channel
    separately.

    Args:
        prob: Probability that an image is changed.
        gamma, brightness, color: Ranges of uniform distributions.
    """

    def __init__(
        self,
        prob: float = 0.5,
        gamma: Sequence[float] = (0.9, 1.1),
        brightness: Sequence[float] = (0.75, 1.25),
        color: Sequence[float] = (0.9, 1.1),
    ) -> None:
        self.prob, self.gamma = prob, gamma
        self.brightness, self.color = brightness, color

    def transform(self, results: dict) -> dict:
        """Change ``img`` (H, W, 3) with values from 0 to 255."""
        if np.random.rand() < self.prob:
            image = results['img'].astype(np.float32) ** np.random.uniform(*self.gamma)
            image *= np.random.uniform(*self.brightness)
            image *= np.random.uniform(*self.color, size=3)
            results['img'] = image.clip(0, 255).astype(np.float32)
        return results
