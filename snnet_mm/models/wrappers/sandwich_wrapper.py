"""Several stitches in one iteration: the sandwich rule."""

from collections.abc import Sequence

from mmengine.model import BaseModel
from mmengine.registry import MODELS
from torch import Tensor

from snnet_mm.stitching import Stitch
from snnet_mm.utils import check

from ..stitch_switch import find_stitched_backbone, set_stitch
from .distillation import Distillation, find_head, recorded_logits
from .model_wrapper import ModelWrapper

SLOWEST, FASTEST = 'slowest.', 'fastest.'


@MODELS.register_module()
class SandwichWrapper(ModelWrapper):
    """A model that trains several stitches in every iteration.

    The slowest anchor runs first and learns from the ground truth alone. Its detached
    logits teach the others (in-place distillation; SN-Netv1, supplement D). Losses are
    named ``slowest.*``, ``fastest.*``, ``stitch0.*`` and so on. Memory grows with every
    stitch, as all share one backward pass.

    Args:
        model: Config of an mm model with a stitched backbone.
        labels: See :class:`Distillation`. None disables distillation: every stitch
            learns from the ground truth alone, in any task.
        alpha: See :class:`Distillation`. With 1, the others learn only from the slowest
            anchor.
        logits_from, data_preprocessor: See :class:`DistillationWrapper`.
    """

    def __init__(
        self,
        model: dict | BaseModel,
        labels: str | None = 'soft',
        alpha: float = 1,
        logits_from: str | None = None,
        data_preprocessor: dict | None = None,
    ) -> None:
        super().__init__(model, data_preprocessor)
        find_stitched_backbone(self)
        self._distillation = None
        if labels is not None:
            self._distillation = Distillation(labels, alpha)
            find_head(self.wrapped, logits_from)
        self._logits_from = logits_from
        self.roles: dict[str, Stitch] = {}

    def on_stitches(self, stitches: Sequence[Stitch]) -> dict[str, Stitch]:
        """Set the stitches of the next losses; return them by role, in run order."""
        anchors = find_stitched_backbone(self).space.anchor_ids
        drawn = {s.id: s for s in stitches}
        present = [i for i in anchors if i in drawn]
        expected = f"one of the anchors {anchors} and others, see 'SandwichSampler'"
        fits = present and len(drawn) > 1
        check(fits, 'default_hooks.stitch_sampling.sampler', sorted(drawn), expected)
        self.roles = {SLOWEST: drawn.pop(present[-1])}
        if len(present) > 1:
            self.roles[FASTEST] = drawn.pop(present[0])
        self.roles |= {f'stitch{n}.': s for n, s in enumerate(drawn.values())}
        return self.roles

    def loss(self, inputs: Tensor, data_samples: list | None) -> dict:
        assert self.roles, 'no stitches were set'
        losses, taught = {}, None
        for role, stitch in self.roles.items():
            set_stitch(self, stitch.id)
            if self._distillation is None:
                own = super().loss(inputs, data_samples)
            else:
                head = find_head(self.wrapped, self._logits_from)
                with recorded_logits(head) as logits:
                    own = super().loss(inputs, data_samples)
                if taught is None:
                    taught = logits[-1].detach()
                else:
                    own = self._distillation.add_to(own, logits[-1], taught)
            losses |= {f'{role}{name}': value for name, value in own.items()}
        return losses
