"""Distillation: a student's logits follow those of a teacher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn

from snnet_mm.utils import check

LABELS = ('hard', 'soft')
# Where classifiers and segmentors of mm packages keep what outputs their logits.
HEADS = ('head', 'decode_head')


@dataclass(frozen=True)
class Distillation:
    """The distillation of DeiT, section 4: for classes of images or of pixels.

    ``(1 - alpha) * task losses + alpha * distillation loss``. With ``'soft'`` labels
    that is ``temperature ** 2 * KL(teacher || student)`` of the softened probabilities,
    with ``'hard'`` ones the cross-entropy with the class that the teacher chooses. Both
    are means over images and pixels, unlabelled pixels included.
    """

    labels: str = 'hard'
    alpha: float = 0.5
    temperature: float = 1

    def __post_init__(self) -> None:
        check(self.labels in LABELS, 'model.labels', self.labels, LABELS)
        check(0 <= self.alpha <= 1, 'model.alpha', self.alpha, 'numbers from 0 to 1')
        wanted = 'positive numbers'
        check(self.temperature > 0, 'model.temperature', self.temperature, wanted)

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the distillation loss of logits ``(B, K)`` or ``(B, K, h, w)``.

        A teacher's map of another size is resampled.
        """
        fits = student.shape[:2] == teacher.shape[:2] and student.ndim == teacher.ndim
        wanted = f'logits of the same images and classes, {tuple(student.shape)}'
        check(fits, 'model.teacher, num_classes', tuple(teacher.shape), wanted)
        student, teacher = student.float(), teacher.detach().float()
        if student.shape != teacher.shape:
            teacher = F.interpolate(teacher, student.shape[2:], mode='bilinear')
        if self.labels == 'hard':
            return F.cross_entropy(student, teacher.argmax(dim=1))
        student = F.log_softmax(student / self.temperature, dim=1)
        teacher = F.log_softmax(teacher / self.temperature, dim=1)
        divergence = F.kl_div(student, teacher, reduction='none', log_target=True)
        return self.temperature**2 * divergence.sum(dim=1).mean()

    def add_to(self, losses: dict, student: Tensor, teacher: Tensor) -> dict:
        """Return task losses in their share, with ``loss_distill`` in its own."""
        weighed, share = dict(losses), 1 - self.alpha
        for name in [name for name in losses if 'loss' in name]:
            value = losses[name]
            is_list = isinstance(value, list)
            weighed[name] = [share * v for v in value] if is_list else share * value
        weighed['loss_distill'] = self.alpha * self.loss(student, teacher)
        return weighed


def find_head(model: BaseModel, name: str | None = None) -> nn.Module:
    """Return the part of a model whose output are its logits.

    By default that of classifiers or segmentors. A detector has none: its boxes differ
    in number and order from one model to the other.
    """
    names = HEADS if name is None else (name,)
    modules = dict(model.named_modules())
    found = [modules[n] for n in names if n in modules]
    wanted = f'classifiers and segmentors, with a part {" or ".join(map(repr, names))}'
    key = 'model.labels, model.logits_from'
    check(found, key, type(model).__name__, f'{wanted} that gives logits of classes')
    # The last one of a cascade of heads.
    return found[0][-1] if isinstance(found[0], nn.ModuleList) else found[0]


@contextmanager
def recorded_logits(head: nn.Module) -> Iterator[list[Tensor]]:
    """Keep what a head outputs inside the block, called as a module or not."""
    outputs: list[Tensor] = []
    forward = head.forward

    def recording(*args, **kwargs) -> Tensor:
        logits = forward(*args, **kwargs)
        outputs.append(check_logits(logits, type(head).__name__))
        return logits

    # A forward hook would miss mmsegmentation's heads, which call it by its name.
    head.forward = recording
    try:
        yield outputs
    finally:
        del head.forward


def check_logits(logits: object, source: str) -> Tensor:
    """Return logits ``(B, K)`` or ``(B, K, h, w)`` of K classes, and nothing else."""
    tensor = isinstance(logits, Tensor)
    fits = tensor and logits.ndim in (2, 4) and logits.shape[1] > 1
    shape = tuple(logits.shape) if tensor else type(logits).__name__
    wanted = (
        'logits of two classes or more, (B, K) or (B, K, h, w); what has no classes, '
        'such as depth, is trained without distillation'
    )
    check(fits, 'model.labels, model.logits_from', f'{source} gives {shape}', wanted)
    return logits
