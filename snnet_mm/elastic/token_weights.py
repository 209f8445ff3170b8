"""Weights of tokens in least-squares fits."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from snnet_mm.anchors import TokenState
from snnet_mm.models import set_stitch
from snnet_mm.tasks import task_of


class RareClassWeights:
    """Lets tokens of rare classes count more in the fits of a segmentation model.

    Most pixels belong to a few classes, but mIoU weighs all classes alike. The weight
    of a token is proportional to ``share ** -0.5`` of the class that the network
    predicts there, where ``share`` is the fraction of pixels with this class. Weights
    of pixels average to 1. No labels are read: ``batches`` are preprocessed images
    ``(B, 3, H, W)``.
    """

    def __init__(self, model: nn.Module, batches: Iterable[Tensor]) -> None:
        set_stitch(model, 0)
        self._classes = [_predicted_classes(model, images) for images in batches]
        numbers = sum(
            torch.bincount(c.flatten().int(), minlength=1 << 16) for c in self._classes
        )
        shares = numbers.double() / numbers.sum()
        weights = torch.where(numbers > 0, shares.clamp(min=1e-12) ** -0.5, 0.0)
        self._weights = (weights / (weights * shares).sum()).float()

    def __call__(self, batch: int, state: TokenState) -> Tensor:
        """Return the weights ``(B, N)`` of the tokens; those of prefix tokens are 1."""
        classes = self._classes[batch][:, None].float()
        classes = F.interpolate(classes, size=state.grid, mode='nearest-exact')
        weights = self._weights[classes.flatten(1).long()].to(state.tokens.device)
        of_prefix = weights.new_ones(len(weights), state.num_prefix)
        return torch.cat([of_prefix, weights], dim=1)


@torch.no_grad()
def _predicted_classes(model: nn.Module, images: Tensor) -> Tensor:
    """Return the predicted classes ``(B, H, W)``, one image at a time."""
    task, found = task_of(model), []
    for image in images.split(1):
        logits = task.predict(model, image, 1)
        one = logits.shape[1] == 1  # the logit of class 1 against class 0
        classes = logits > 0 if one else logits.argmax(dim=1, keepdim=True)
        found.append(classes[:, 0].to('cpu', torch.int16))
    return torch.cat(found)
