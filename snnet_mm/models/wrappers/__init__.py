"""Models around any mm model that change how it is trained, and nothing else."""

from .distillation import Distillation
from .distillation_wrapper import DistillationWrapper
from .model_wrapper import ModelWrapper, model_config, unwrapped_config
from .sandwich_wrapper import SandwichWrapper
from .timm_teacher import TimmTeacher

__all__ = [
    'Distillation',
    'DistillationWrapper',
    'ModelWrapper',
    'SandwichWrapper',
    'TimmTeacher',
    'model_config',
    'unwrapped_config',
]
