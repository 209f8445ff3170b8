"""The number of channels of the images that a network takes."""

from torch import nn

from .base import Anchor
from .blockwise import has_family


def image_channels(model: nn.Module) -> int:
    """Return the number of channels of the images that a model takes.

    It is that of the first convolution of the anchors, or of a backbone that
    :func:`family_of` supports. Other networks take as many as the data preprocessor has
    means, or 3.
    """
    parts = [m for m in model.modules() if isinstance(m, Anchor) and m.has_embedding]
    backbone = getattr(model, 'backbone', None)
    if not parts and isinstance(backbone, nn.Module) and has_family(backbone):
        parts = [backbone]
    for part in parts:
        for module in part.modules():
            if isinstance(module, nn.Conv2d):
                return module.in_channels
    mean = getattr(getattr(model, 'data_preprocessor', None), 'mean', None)
    return len(mean) if mean is not None and len(mean) > 1 else 3
