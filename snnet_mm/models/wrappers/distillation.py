"""Distillation: a student's logits follow those of a teacher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch.nn.functional as F
from mmengine.model import BaseModel
from torch import Tensor, nn

LABELS = ('hard', 'soft')
# Where classifiers and segmentors of mm packages keep what outputs their logits.
HEADS = ('head', 'decode_head')


@dataclass(frozen=True)
class Distillation:
    """The distillation of DeiT, section 4: for classes of images or of pixels.

    ``(1 - alpha) * task losses + alpha * distillation loss``. With soft labels that is
    ``temperature ** 2 * KL(teacher || student)`` of the softened probabilities, with
    hard labels the cross-entropy with the class that the teacher chooses. Both are
    means over images and pixels, unlabelled pixels included.

    Args:
        labels: ``'hard'`` or ``'soft'``.
        alpha: Share of the distillation loss.
        temperature: What logits are divided by for soft labels.

    Raises:
        ValueError: If one of them is not allowed.
    """

    labels: str = 'hard'
    alpha: float = 0.5
    temperature: float = 1

    def __post_init__(self) -> None:
        for key, allowed, text in (
            ('labels', self.labels in LABELS, f'{LABELS}'),
            ('alpha', 0 <= self.alpha <= 1, '0 to 1'),
            ('temperature', self.temperature > 0, 'positive numbers'),
        ):
            if not allowed:
                raise ValueError(
                    f'{key}={getattr(self, key)!r} of a distillation; allowed are '
                    f'{text} (config key: model.{key})'
                )

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        """The distillation loss.

        Args:
            student: Logits ``(B, K)``, or a map ``(B, K, h, w)`` of them.
            teacher: Logits of the same images; a map of another size is resampled.

        Raises:
            ValueError: If they have other classes, or one is a map and one is not.
        """
        if student.shape[:2] != teacher.shape[:2] or student.ndim != teacher.ndim:
            raise ValueError(
                f'logits of the teacher have shape {tuple(teacher.shape)}, those of '
                f'the student {tuple(student.shape)}; both must be of the same images '
                'and classes (config keys: model.teacher, num_classes)'
            )
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
        """Task losses in their share, with ``loss_distill`` in its own."""
        weighed = {
            name: _scaled(value, 1 - self.alpha) if 'loss' in name else value
            for name, value in losses.items()
        }
        weighed['loss_distill'] = self.alpha * self.loss(student, teacher)
        return weighed


def find_head(model: BaseModel, name: str | None = None) -> nn.Module:
    """The part of a model whose output are its logits.

    Args:
        model: The model.
        name: Name of the part; by default that of classifiers or segmentors.

    Raises:
        ValueError: If there is none.
    """
    names = HEADS if name is None else (name,)
    modules = dict(model.named_modules())
    found = [modules[n] for n in names if n in modules]
    if not found:
        raise ValueError(
            f'{type(model).__name__} has no part {" or ".join(map(repr, names))} that '
            'gives logits of classes; allowed are classifiers and segmentors. A '
            'detector is not distilled: its boxes differ in number and order from one '
            'model to the other (config keys: model.labels, model.logits_from)'
        )
    # The last one of a cascade of heads.
    return found[0][-1] if isinstance(found[0], nn.ModuleList) else found[0]


@contextmanager
def recorded_logits(head: nn.Module) -> Iterator[list[Tensor]]:
    """Keep what a head outputs inside the block, called as a module or not.

    Raises:
        ValueError: If that is no logits of two classes or more.
    """
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
    """Logits ``(B, K)`` or ``(B, K, h, w)`` of K classes.

    Raises:
        ValueError: If they are anything else.
    """
    if isinstance(logits, Tensor) and logits.ndim in (2, 4) and logits.shape[1] > 1:
        return logits
    shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
    raise ValueError(
        f'{source} gives {shape}, not the logits of two classes or more, (B, K) or '
        '(B, K, h, w), that can be distilled; what has no classes, such as depth, is '
        'trained without (config keys: model.labels, model.logits_from)'
    )


def _scaled(value: Tensor | list[Tensor], factor: float) -> Tensor | list[Tensor]:
    if isinstance(value, Tensor):
        return factor * value
    return [factor * v for v in value]
