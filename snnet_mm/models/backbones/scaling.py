"""Images at a scale, and maps at the size of the images' own."""

from collections.abc import Sequence

import torch.nn.functional as F
from torch import Tensor

from snnet_mm.anchors import Anchor, BackboneMap


def scaled_size(size: tuple[int, int], scale: float, anchor: Anchor) -> tuple[int, int]:
    """Return a height and a width times a scale, in whole patches or strides."""
    stride = max(anchor.block_strides)
    if scale == 1:
        return size
    height, width = (min(n, max(1, round(n * scale / stride)) * stride) for n in size)
    return height, width


def scaled_images(images: Tensor, scale: float, anchor: Anchor) -> Tensor:
    """Return images ``(B, 3, H, W)`` at a scale, resized with antialiasing."""
    if scale == 1:
        return images
    size = scaled_size(tuple(images.shape[-2:]), scale, anchor)
    return F.interpolate(images, size, mode='bilinear', antialias=True)


def maps_at(
    size: tuple[int, int], seen: tuple[int, int], maps: tuple[BackboneMap | None, ...]
) -> tuple[BackboneMap | None, ...]:
    """Return maps of images of the size ``seen`` as large as those of another size."""

    def resized(x: BackboneMap | None) -> BackboneMap | None:
        if isinstance(x, Sequence):  # with a cls token
            return resized(x[0]), x[1]
        if x is None or x.ndim < 4:  # pooled
            return x
        pairs = zip(x.shape[-2:], size, seen, strict=True)
        sides = [-(-n * wanted // now) for n, wanted, now in pairs]
        return F.interpolate(x, sides, mode='bilinear')

    return tuple(map(resized, maps))
