"""How far predictions of a chain are from those of the whole network."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from snnet_mm.costs import cost_table
from snnet_mm.costs.parts import FEATURES, SCOPES
from snnet_mm.models import StitchedBackbone, find_stitched_backbone


class Predictions:
    """Reads and compares what a model predicts from the output of its backbone.

    Models that classify images or pixels are compared by the Kullback-Leibler
    divergence of their class probabilities, all others by the squared error over the
    variance: of depth maps, or, where heads need ground truth or proposals, of the maps
    of the neck.

    Args:
        model: An mm model with a stitched backbone.
        input_size: Height and width of its images.
    """

    def __init__(self, model: nn.Module, input_size: tuple[int, int]) -> None:
        self.model, self.backbone = model, find_stitched_backbone(model)
        scope = cost_table(model, input_size).scope
        self._run = SCOPES[scope]
        heads = (getattr(model, name, None) for name in ('decode_head', 'head'))
        classes = max(getattr(head, 'num_classes', None) or 0 for head in heads)
        self.classifies = scope != FEATURES and classes > 1

    def read(self, images: Tensor, output: object) -> list[Tensor]:
        """Return predictions from images ``(B, 3, H, W)`` and the backbone's output."""
        with given_output(self.backbone, output):
            found = tree_leaves(self._run(self.model, images))
        return [t for t in found if isinstance(t, Tensor) and t.is_floating_point()]

    def distance(self, found: Sequence[Tensor], target: Sequence[Tensor]) -> Tensor:
        """Return the mean divergence of predictions from those of the network."""
        return sum(map(self._one, found, target)) / len(target)

    def _one(self, found: Tensor, target: Tensor) -> Tensor:
        found, target = found.float(), target.float()
        if not self.classifies:
            return (found - target).square().mean() / target.var()
        log, wanted = found.log_softmax(1), target.log_softmax(1)
        return (wanted.exp() * (wanted - log)).sum(1).mean()


@contextmanager
def given_output(backbone: StitchedBackbone, output: object) -> Iterator[None]:
    """Let a backbone return an output without running."""
    backbone.forward = lambda *args, **kwargs: output
    try:
        yield
    finally:
        del backbone.forward


@contextmanager
def recorded_output(backbone: StitchedBackbone) -> Iterator[Callable[[], object]]:
    """Keep the last output of a backbone inside the block."""
    outputs: list[object] = []
    hook = backbone.register_forward_hook(lambda *args: outputs.append(args[-1]))
    try:
        yield lambda: outputs[-1]
    finally:
        hook.remove()


def alignment_loss(found: object, target: object) -> Tensor:
    """Return one less the mean cosine of the channels of two backbone outputs."""
    pairs = zip(_maps(found), _maps(target), strict=True)
    losses = [
        1 - torch.cosine_similarity(a, b, dim=dim).mean() for (a, dim), (b, _) in pairs
    ]
    return sum(losses) / len(losses)


def _maps(output: object) -> list[tuple[Tensor, int]]:
    """Return tensors of an output with the dimension of their channels."""
    found = [t for t in tree_leaves(output) if isinstance(t, Tensor)]
    return [(t, 1 if t.ndim in (2, 4) else -1) for t in found]
