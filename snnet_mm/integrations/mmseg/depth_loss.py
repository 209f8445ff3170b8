"""The loss of depth estimation."""

import torch
from mmengine.logging import MessageHub
from mmseg.registry import MODELS
from torch import Tensor, nn

from snnet_mm.utils import check, register

EPS = 1e-3
MEAN_WEIGHT = 0.15
# Below this the square root would have an infinite gradient.
LEAST_SQUARE = 1e-12


@register(MODELS)
class ScaleInvariantLogLoss(nn.Module):
    """The scale-invariant log loss over all valid pixels of a batch.

    ``sqrt(var(d) + 0.15 mean(d)^2)`` with ``d = log(pred + 1e-3) - log(gt + 1e-3)``;
    in the first ``warm_up_iters`` of a run ``sqrt(0.15 mean(d)^2)``, which learns the
    scale before the shape. Pixels of truth 0 are not valid. A batch without valid
    pixels, and a perfect prediction, have a gradient of zero.
    """

    def __init__(
        self,
        warm_up_iters: int = 100,
        loss_weight: float = 1,
        loss_name: str = 'loss_depth',
    ) -> None:
        super().__init__()
        self.warm_up_iters = warm_up_iters
        self.loss_weight = loss_weight
        self.loss_name = loss_name

    def forward(self, pred: Tensor, target: Tensor) -> Tensor:
        """Return the loss of depths in metres, of any equal shapes."""
        shapes = tuple(pred.shape), tuple(target.shape)
        key = 'train_dataloader.dataset.pipeline'
        check(shapes[0] == shapes[1], key, shapes, 'equal shapes of depths')
        valid = target > 0
        if not valid.any():
            return pred.sum() * 0
        # Half precision cannot hold the squares of small differences.
        pred, target = pred[valid].float(), target[valid].float()
        d = torch.log(pred + EPS) - torch.log(target + EPS)
        square = MEAN_WEIGHT * d.mean().square()
        iteration = MessageHub.get_current_instance().get_info('iter')
        if iteration is None or iteration >= self.warm_up_iters:
            square = square + d.var(correction=int(len(d) > 1))
        return self.loss_weight * square.clamp_min(LEAST_SQUARE).sqrt()
