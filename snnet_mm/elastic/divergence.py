"""Divergence of a chain's predictions from the whole network's."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from snnet_mm.costs.parts import returning
from snnet_mm.models import find_stitched_backbone
from snnet_mm.tasks import map_divergence, task_of


class PredictionDistance:
    """Computes predictions from the output of a backbone, and compares them.

    Class probabilities of images or pixels are compared by the Kullback-Leibler
    divergence; those of independent labels, one by one. Depth maps, the outputs of
    dense detection heads, and the maps that other detection heads read are compared by
    the squared error over the variance. If the cost table excludes the heads, the maps
    that they read are compared.

    Args:
        model: An mm model with a stitched backbone.
        scope: That of its cost table.
    """

    def __init__(self, model: nn.Module, scope: str | None) -> None:
        self.model, self.backbone = model, find_stitched_backbone(model)
        task = task_of(model)
        self._run = task.run_features if scope else task.outputs
        self._divergence = map_divergence if scope else task.divergence(model)

    def read(self, images: Tensor, output: object) -> list[Tensor]:
        """Return predictions for images ``(B, 3, H, W)``, from a backbone output."""
        with returning(self.backbone, output):
            found = tree_leaves(self._run(self.model, images))
        return [t for t in found if isinstance(t, Tensor) and t.is_floating_point()]

    def distance(self, found: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
        """Return the mean divergence of predictions from the network's, the target."""
        pairs = zip(found, target, strict=True)
        return sum(self._divergence(a, b) for a, b in pairs) / len(target)
