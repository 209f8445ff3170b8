"""Distillation: a student's logits are trained to match a teacher's."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from mmengine.model import BaseDataPreprocessor, BaseModel, ImgDataPreprocessor
from mmengine.registry import MODELS
from torch import Tensor, nn

from snnet_mm.anchors.pretrained import Weights, load_into
from snnet_mm.tasks import class_divergence, softmax_logits, task_of
from snnet_mm.utils import check
from snnet_mm.utils.timm_models import create_timm_model

from ..part_per_anchor import PartPerAnchor
from .model_wrapper import ModelWrapper

DEFAULT_TEACHER = dict(type='TimmTeacher')


@dataclass(frozen=True)
class Distillation:
    """DeiT's distillation (section 4) for image classification and segmentation.

    The loss is ``(1 - alpha) * task losses + alpha * distillation loss``. For
    ``'soft'`` labels the latter is ``KL(teacher || student)``, for ``'hard'`` labels
    cross-entropy with the teacher's class. Both are averaged over images and pixels.
    """

    labels: str = 'hard'
    alpha: float = 0.5

    def __post_init__(self) -> None:
        labels = 'hard', 'soft'
        check(self.labels in labels, 'model.labels', self.labels, labels)
        check(0 <= self.alpha <= 1, 'model.alpha', self.alpha, 'a number from 0 to 1')

    def loss(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the loss of logits ``(B, K)`` or ``(B, K, h, w)`` of any two sizes."""
        fits = student.shape[:2] == teacher.shape[:2] and student.ndim == teacher.ndim
        expected = f'logits of the same images and classes, {tuple(student.shape)}'
        check(fits, 'model.teacher, num_classes', tuple(teacher.shape), expected)
        student, teacher = student.float(), teacher.detach().float()
        if student.shape != teacher.shape:
            teacher = F.interpolate(teacher, student.shape[2:], mode='bilinear')
        if self.labels == 'hard':
            chosen = softmax_logits(teacher).argmax(dim=1)
            return F.cross_entropy(softmax_logits(student), chosen)
        return class_divergence(student, teacher)

    def add_to(self, losses: dict, student: Tensor, teacher: Tensor) -> dict:
        """Return the weighted task losses and the weighted ``loss_distill``."""
        weighted, weight = dict(losses), 1 - self.alpha
        for name, value in losses.items():
            if 'loss' in name and isinstance(value, list):
                weighted[name] = [weight * v for v in value]
            elif 'loss' in name:
                weighted[name] = weight * value
        return weighted | dict(loss_distill=self.alpha * self.loss(student, teacher))


@MODELS.register_module()
class DistillationWrapper(ModelWrapper):
    """A classifier or segmentor that also learns from a teacher (SN-Netv1, 3.2).

    Without a teacher it is the model alone.

    The frozen teacher sees the student's augmented images, normalised by its own data
    preprocessor if it has one. It is not a submodule: checkpoints and the optimizer
    exclude it, and it is built only for training.

    Args:
        model: Config of the student, any mm model that outputs class logits.
        teacher: Config of the teacher: a :class:`TimmTeacher` (default) or an mm model
            with the same classes. None trains the model alone, by its own losses.
        teacher_checkpoint: File of the teacher's weights. Default: the weights of
            ``pretrained`` or ``init_cfg`` in its config.
        labels, alpha: See :class:`Distillation`.
        logits_from: Name of the student's part that outputs logits. Default:
            ``'head'`` or ``'decode_head'``.
        data_preprocessor: See :class:`ModelWrapper`.
    """

    def __init__(
        self,
        model: dict | BaseModel,
        teacher: dict | None = DEFAULT_TEACHER,
        teacher_checkpoint: str | None = None,
        labels: str = 'hard',
        alpha: float = 0.5,
        logits_from: str | None = None,
        data_preprocessor: dict | None = None,
    ) -> None:
        super().__init__(model, data_preprocessor)
        if teacher is None:
            key, expected = 'model.teacher_checkpoint', 'None, as there is no teacher'
            check(teacher_checkpoint is None, key, teacher_checkpoint, expected)
        else:
            pretrained = teacher.get('pretrained', teacher['type'] == 'TimmTeacher')
            known = teacher_checkpoint or pretrained or teacher.get('init_cfg')
            weights = 'teacher_checkpoint, pretrained or init_cfg'
            expected = f'a teacher with weights: {weights}'
            check(known, 'model.teacher', teacher['type'], expected)
            find_head(self.wrapped, logits_from)
        self._distillation, self._logits_from = Distillation(labels, alpha), logits_from
        self._teacher_cfg, self._teacher_checkpoint = teacher, teacher_checkpoint
        # A tuple hides it from the optimizer and from checkpoints.
        self._teacher: tuple[BaseModel, ...] = ()

    def init_weights(self) -> None:
        super().init_weights()
        if self._teacher_cfg is not None:  # built before training begins
            self.teacher_on(next(self.parameters()).device)

    def teacher_on(self, device: torch.device) -> BaseModel:
        """Return the teacher on a device; build and move it if necessary."""
        if not self._teacher:
            teacher = MODELS.build(self._teacher_cfg)
            teacher.init_weights()
            if self._teacher_checkpoint is not None:
                _load(teacher, self._teacher_checkpoint)
            self._teacher = (teacher.eval().requires_grad_(False),)
        (teacher,) = self._teacher
        if next(teacher.parameters()).device != device:
            teacher.to(device)
        return teacher

    def loss(self, inputs: Tensor, data_samples: list | None) -> dict:
        """Return the losses of preprocessed images; a teacher adds ``loss_distill``."""
        if self._teacher_cfg is None:
            return super().loss(inputs, data_samples)
        with recorded_logits(find_head(self.wrapped, self._logits_from)) as logits:
            losses = super().loss(inputs, data_samples)
        return self._distillation.add_to(losses, logits[-1], self.teach(inputs))

    @torch.no_grad()
    def teach(self, inputs: Tensor) -> Tensor:
        """Return the teacher's logits for images preprocessed for the student."""
        teacher = self.teacher_on(inputs.device)
        # A teacher whose config has no preprocessor is assumed to share the student's:
        # mmpretrain configs have it at the top level.
        own = self._teacher_cfg.get('data_preprocessor')
        if own or isinstance(teacher, TimmTeacher):
            preprocessors = self.data_preprocessor, teacher.data_preprocessor
            inputs = renormalise(inputs, *preprocessors)
        logits = teacher(inputs, mode='tensor')
        return check_logits(logits, f'teacher {type(teacher).__name__}', min_classes=1)


@MODELS.register_module()
class TimmTeacher(BaseModel):
    """A timm classifier with its own image normalisation.

    Args:
        name: Name in timm. Default: DeiT's teacher, as in SN-Netv1.
        pretrained: Whether timm downloads the weights. Default: True.
        **kwargs: Further arguments of ``timm.create_model``.
    """

    def __init__(
        self, name: str = 'regnety_160.deit_in1k', pretrained: bool = True, **kwargs
    ) -> None:
        model = create_timm_model(name, pretrained=pretrained, **kwargs)
        cfg = model.pretrained_cfg
        mean, std = ([255 * x for x in cfg[key]] for key in ('mean', 'std'))
        super().__init__(ImgDataPreprocessor(mean, std, bgr_to_rgb=True))
        self.model = model

    def forward(
        self, inputs: Tensor, data_samples: list | None = None, mode: str = 'tensor'
    ) -> Tensor:
        """Return logits ``(B, K)`` of images ``(B, 3, H, W)`` in every mode."""
        return self.model(inputs)


def renormalise(
    images: Tensor, source: BaseDataPreprocessor, target: BaseDataPreprocessor
) -> Tensor:
    """Convert images ``(B, C, H, W)`` from one model's normalisation to another's.

    Padding with 0 still represents the mean of ``source``.
    """
    mean, std, reverses = _normalisation(source)
    target_mean, target_std, target_reverses = _normalisation(target)
    numbers = {len(x) for x in (images[0], mean, target_mean)} - {1}
    expected = 'a teacher with as many input channels as the images'
    check(len(numbers) < 2, 'model.teacher', sorted(numbers), expected)
    if reverses != target_reverses:
        images, mean, std = images.flip(1), mean.flip(0), std.flip(0)
    # In float64, so that equal normalisations cancel to the identity.
    scale, shift = std / target_std, (mean - target_mean) / target_std
    return images * scale.to(images) + shift.to(images)


def find_head(model: BaseModel, name: str | None = None) -> nn.Module:
    """Return the part of a classifier or segmentor that outputs its logits."""
    task = task_of(model)
    names = task.heads * task.classifies if name is None else (name,)
    modules = dict(model.named_modules())
    found = [modules[n] for n in names if n in modules]
    expected = 'a classifier, a segmentor, or a part that returns logits of classes'
    check(found, 'model.labels, model.logits_from', type(model).__name__, expected)
    # In a cascade of heads, the last one outputs the logits.
    return found[0][-1] if isinstance(found[0], nn.ModuleList) else found[0]


@contextmanager
def recorded_logits(head: nn.Module) -> Iterator[list[Tensor]]:
    """Record the outputs of a head within the context, however it is called."""
    outputs: list[Tensor] = []
    heads = head.parts if isinstance(head, PartPerAnchor) else [head]
    # mmsegmentation's heads of two classes may output one logit, for a sigmoid.
    min_classes = 1 if getattr(heads[0], 'num_classes', None) == 2 else 2

    def recording(forward: Callable, kind: str, *args, **kwargs) -> Tensor:
        outputs.append(check_logits(forward(*args, **kwargs), kind, min_classes))
        return outputs[-1]

    # mmsegmentation's heads call ``forward`` directly, which bypasses forward hooks.
    for each in heads:
        each.forward = partial(recording, each.forward, type(each).__name__)
    try:
        yield outputs
    finally:
        for each in heads:
            del each.forward


def check_logits(logits: object, source: str, min_classes: int = 2) -> Tensor:
    """Return logits ``(B, K)`` or ``(B, K, h, w)``, K >= min_classes, or raise."""
    tensor = isinstance(logits, Tensor)
    fits = tensor and logits.ndim in (2, 4) and logits.shape[1] >= min_classes
    shape = tuple(logits.shape) if tensor else type(logits).__name__
    expected = (
        'logits of two classes or more, (B, K) or (B, K, h, w); tasks without '
        'classes, such as depth, are trained without distillation'
    )
    check(fits, 'model.labels, model.logits_from', f'{source} gives {shape}', expected)
    return logits


def _normalisation(preprocessor: BaseDataPreprocessor) -> tuple[Tensor, Tensor, bool]:
    """Return mean and std ``(C, 1, 1)`` of inputs, and if channels are reversed."""
    mean = getattr(preprocessor, 'mean', torch.zeros(1, 1, 1))
    std = getattr(preprocessor, 'std', torch.ones(1, 1, 1))
    # Attribute names of mmengine, mmsegmentation and mmpretrain.
    keys = '_channel_conversion', 'channel_conversion', 'to_rgb'
    reverses = any(getattr(preprocessor, key, False) for key in keys)
    return mean.double(), std.double(), reverses


def _load(teacher: BaseModel, checkpoint: str) -> None:
    """Load weights of an mm model, or timm weights into a :class:`TimmTeacher`."""
    own = teacher.state_dict()

    def adapt(weights: Weights) -> Weights:
        if not own.keys() & weights.keys():
            weights = {f'model.{k}': v for k, v in weights.items()}
        return {k: v for k, v in weights.items() if k in own}

    load_into(teacher, checkpoint, 'model.teacher_checkpoint', adapt=adapt)
