"""Distillation from a teacher that is another network."""

from __future__ import annotations

import torch
from mmengine.model import BaseModel, ImgDataPreprocessor
from mmengine.registry import MODELS
from torch import Tensor

from snnet_mm.anchors.pretrained import Weights, load_into
from snnet_mm.utils import check, register
from snnet_mm.utils.timm_models import create_timm_model

from .distillation import Distillation, check_logits, find_head, recorded_logits
from .model_wrapper import ModelWrapper
from .normalisation import Renormalisation


@register(MODELS)
class DistillationWrapper(ModelWrapper):
    """A classifier or segmentor that also learns from a teacher (SN-Netv1, 3.2).

    The teacher sees the student's images, augmented and mixed, normalised as its own
    data preprocessor does it. It is frozen, in eval mode, neither in checkpoints nor
    given to the optimizer, and built only where a model is trained.

    Args:
        model: Config of the student, any mm model with logits of classes.
        teacher: Config of the teacher: a :class:`TimmTeacher` or an mm model of the
            same classes.
        teacher_checkpoint: Weights of the teacher, a file of any source; by default
            those that its config names, by ``pretrained`` or ``init_cfg``.
        labels, alpha, temperature: See :class:`Distillation`.
        logits_from: Name of the part of the student that gives the logits; by default
            ``'head'`` of a classifier, ``'decode_head'`` of a segmentor.
        data_preprocessor: See :class:`ModelWrapper`.
    """

    def __init__(
        self,
        model: dict | BaseModel,
        teacher: dict | None = None,
        teacher_checkpoint: str | None = None,
        labels: str = 'hard',
        alpha: float = 0.5,
        temperature: float = 1,
        logits_from: str | None = None,
        data_preprocessor: dict | None = None,
    ) -> None:
        super().__init__(model, data_preprocessor)
        self._distillation = Distillation(labels, alpha, temperature)
        self._teacher_cfg = dict(type='TimmTeacher') if teacher is None else teacher
        self._teacher_checkpoint = teacher_checkpoint
        _check_has_weights(self._teacher_cfg, teacher_checkpoint)
        find_head(self.wrapped, logits_from)
        self._logits_from = logits_from
        # In a tuple, which hides it from the optimizer and from checkpoints.
        self._teacher: tuple[BaseModel, Renormalisation] | None = None

    def init_weights(self) -> None:
        """Initialise the model, and build the teacher before training begins."""
        super().init_weights()
        self._build_teacher()

    def loss(self, inputs: Tensor, data_samples: list | None) -> dict:
        """Return the losses of preprocessed images, with ``loss_distill``."""
        head = find_head(self.wrapped, self._logits_from)
        with recorded_logits(head) as logits:
            losses = super().loss(inputs, data_samples)
        return self._distillation.add_to(losses, logits[-1], self.teach(inputs))

    @torch.no_grad()
    def teach(self, inputs: Tensor) -> Tensor:
        """Return the teacher's logits of images preprocessed for the student."""
        teacher, renormalise = self._build_teacher()
        if next(teacher.parameters()).device != inputs.device:
            teacher.to(inputs.device)
            renormalise.to(inputs.device)
        logits = teacher(renormalise(inputs), mode='tensor')
        return check_logits(logits, f'teacher {type(teacher).__name__}')

    def _build_teacher(self) -> tuple[BaseModel, Renormalisation]:
        if self._teacher is None:
            teacher = MODELS.build(self._teacher_cfg)
            teacher.init_weights()
            if self._teacher_checkpoint is not None:
                _load(teacher, self._teacher_checkpoint)
            teacher.eval().requires_grad_(False)
            preprocessors = self.data_preprocessor, teacher.data_preprocessor
            self._teacher = teacher, Renormalisation(*preprocessors)
        return self._teacher


@register(MODELS, passes_on=True)
class TimmTeacher(BaseModel):
    """A classifier of timm that knows how its images are normalised.

    Args:
        name: Its name in timm; SN-Netv1 has the teacher of DeiT, RegNetY-160.
        pretrained: Whether timm fetches the weights.
        **kwargs: What else ``timm.create_model`` takes, such as ``num_classes``.
    """

    def __init__(
        self, name: str = 'regnety_160', pretrained: bool = True, **kwargs
    ) -> None:
        try:
            model = create_timm_model(name, pretrained=pretrained, **kwargs)
        except ValueError as error:
            raise ValueError(f'{error} (config key: model.teacher)') from error
        cfg = model.pretrained_cfg
        mean, std = ([255 * x for x in cfg[key]] for key in ('mean', 'std'))
        super().__init__(ImgDataPreprocessor(mean, std, bgr_to_rgb=True))
        self.model = model

    def forward(
        self, inputs: Tensor, data_samples: list | None = None, mode: str = 'tensor'
    ) -> Tensor:
        """Return logits ``(B, K)`` of images ``(B, 3, H, W)``, whatever the mode."""
        return self.model(inputs)


def _check_has_weights(teacher: dict, checkpoint: str | None) -> None:
    pretrained = teacher.get('pretrained', teacher['type'] == 'TimmTeacher')
    known = checkpoint or pretrained or teacher.get('init_cfg')
    wanted = 'a teacher with weights: teacher_checkpoint, or its pretrained or init_cfg'
    check(known, 'model.teacher', teacher['type'], wanted)


def _load(teacher: BaseModel, checkpoint: str) -> None:
    """Load weights of an mm model, or of timm's inside a :class:`TimmTeacher`."""
    own = teacher.state_dict()

    def adapt(weights: Weights) -> Weights:
        if not own.keys() & weights.keys():
            weights = {f'model.{k}': v for k, v in weights.items()}
        return {k: v for k, v in weights.items() if k in own}

    load_into(teacher, checkpoint, 'model.teacher_checkpoint', adapt=adapt)
