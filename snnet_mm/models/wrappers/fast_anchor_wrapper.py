"""Training of a fast anchor that was derived from the slow one."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

import torch
import torch.nn.functional as F
from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor

from snnet_mm.anchors import Anchor
from snnet_mm.utils import register

from .distillation import Distillation, TeacherWrapper, find_head, recorded_logits


@register(MODELS)
class FastAnchorWrapper(TeacherWrapper):
    """A model whose anchor is distilled from a larger one, block by block.

    The loss is the task's, plus ``logits_weight`` times the Kullback-Leibler
    divergence of the logits, plus ``1 - cosine`` of each token with the teacher's. The
    latter is averaged over the blocks, and added once more for the last block.

    Args:
        model: Config of an mm model with the small anchor as its backbone.
        teacher: Config of the model with the large anchor; it sees the same images.
        teacher_checkpoint, data_preprocessor: See :class:`TeacherWrapper`.
        places: For every block of the small anchor, the block of the large one after
            which tokens are compared.
        labels: Whether images have labels. If False, only the tokens are distilled.
        logits_weight: Weight of the divergence; 0 for tasks without class logits.
    """

    def __init__(
        self,
        model: dict | BaseModel,
        teacher: dict,
        teacher_checkpoint: str | None = None,
        places: Sequence[int] = (),
        labels: bool = True,
        logits_weight: float = 0.1,
        data_preprocessor: dict | None = None,
    ) -> None:
        super().__init__(model, teacher, teacher_checkpoint, data_preprocessor)
        anchor = getattr(self.wrapped, 'backbone', None)
        assert isinstance(anchor, Anchor)
        assert len(places) == anchor.depth
        if logits_weight:
            find_head(self.wrapped)
        self.places, self.labels = tuple(places), labels
        self.logits_weight = logits_weight if labels else 0
        self._logits = Distillation('soft', alpha=1)

    def loss(self, inputs: Tensor, data_samples: list | None) -> dict:
        """Return the losses of preprocessed images by name."""
        teacher = self.teacher_on(inputs.device)
        with torch.no_grad():
            theirs, taught, _ = self._run(teacher, inputs, None, set(self.places))
        wanted = [theirs[i] for i in self.places]
        samples = data_samples if self.labels else None
        ours, logits, losses = self._run(self.wrapped, inputs, samples)
        distances = [
            1 - F.cosine_similarity(ours[i].float(), tokens.float(), dim=-1).mean()
            for i, tokens in enumerate(wanted)
        ]
        losses['loss_tokens'] = torch.stack(distances).mean() + distances[-1]
        if self.logits_weight:
            distance = self._logits.loss(logits[-1], taught[-1])
            losses['loss_logits'] = self.logits_weight * distance
        return losses

    def _run(
        self,
        model: BaseModel,
        inputs: Tensor,
        data_samples: list | None,
        places: set[int] | None = None,
    ) -> tuple[dict[int, Tensor], list[Tensor], dict]:
        """Return tokens by block, and logits and losses if required."""
        logits, losses = [], {}
        with ExitStack() as stack:
            tokens = stack.enter_context(recorded_tokens(model.backbone, places))
            if self.logits_weight:
                logits = stack.enter_context(recorded_logits(find_head(model)))
            if data_samples is not None:
                losses = model(inputs, data_samples, mode='loss')
            elif self.logits_weight:
                model(inputs, mode='tensor')
            else:
                model.backbone(inputs)
        return tokens, logits, losses


@contextmanager
def recorded_tokens(
    anchor: Anchor, places: set[int] | None = None
) -> Iterator[dict[int, Tensor]]:
    """Record tokens ``(B, L, C)`` by block within the context. Default: all blocks."""
    tokens, run_block = {}, anchor.run_block

    def recording(state, i):
        state = run_block(state, i)
        if places is None or i in places:
            tokens[i] = state.tokens
        return state

    anchor.run_block = recording
    try:
        yield tokens
    finally:
        del anchor.run_block
