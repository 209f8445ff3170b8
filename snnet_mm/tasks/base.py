"""The contract of a task, and the registry of all tasks.

Tasks are a layer below models and costs, which query them for the heads of a model and
for how to run it. Tasks import no mm package: they identify classes by name.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TypeVar

import numpy as np
import torch
from mmengine.evaluator import BaseMetric, Evaluator
from mmengine.model import BaseModel
from mmengine.structures import BaseDataElement
from mmengine.visualization import Visualizer
from torch import Tensor, nn

from snnet_mm.stitching import know_metrics
from snnet_mm.utils import check
from snnet_mm.utils.logging import quiet_imports

Predictions = Tensor | tuple[Tensor, ...]
Values = Mapping[str, object]
# Numerators and denominators (images, columns), and a scale; see ImageScores.
ImageStatistics = tuple[np.ndarray, np.ndarray, float]
T = TypeVar('T', bound='Task')


class Task:
    """Everything that depends on the task of a model; this class defines defaults.

    Attributes:
        name: Name of the task.
        scope: mm package that is the default scope of configs, or None.
        parts: Module that registers classes for configs, or None.
        classes: Class names of the models, metrics and visualizers of the task.
            Subclasses are included.
        heads: Attribute paths of heads with one output per class of the data. The first
            that a model has computes its logits.
        one_class: Class names of heads in ``heads`` with one output for all classes.
        classifies: Whether images or pixels are classified.
        unsized: Whether the backbone must not resize its images.
        full_maps: Whether heads need maps as large as those of unscaled images.
        higher, lower: Lower-case names of metrics that are better when higher or lower.
        ranking: Metrics that rank stitches by default; the first available one is used.
        saving_keys: Attributes of metrics with the path where predictions are saved.
        exact_metric: The only metric that does not count omitted images as missed, or
            None if no metric does.
        inferencer: Module and class name of mm's inferencer.
        compiled: Method of the models that contains as much as torch can compile.
    """

    name = 'other'
    scope: str | None = None
    parts: str | None = None
    classes: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    one_class: tuple[str, ...] = ()
    classifies = False
    unsized = False
    full_maps = True
    higher: tuple[str, ...] = ()
    lower: tuple[str, ...] = ()
    ranking: tuple[str, ...] = ()
    saving_keys: tuple[str, ...] = ()
    exact_metric: str | None = None
    inferencer: tuple[str, str] | None = None
    compiled = 'extract_feat'

    def full_mode(self, model: nn.Module) -> str:
        """Return the mode of mm's forward that runs all that prediction runs."""
        return 'tensor'

    def run(self, model: nn.Module, images: Tensor) -> object:
        """Run all that prediction runs on preprocessed images.

        Costs are counted and measured on this call.

        Raises:
            NotImplementedError: If the heads cannot run on images alone.
        """
        if isinstance(model, BaseModel):
            return model(images, mode='tensor')
        return model(images)

    def outputs(self, model: nn.Module, images: Tensor) -> object:
        """Return head outputs before thresholds and NMS, or the maps that heads read.

        Chains of an elastic model are compared by these outputs.
        """
        return Task.run(self, model, images)

    def run_features(self, model: nn.Module, images: Tensor) -> object:
        """Run only backbone and neck; the model may be wrapped."""
        for name in ('extract_feat', 'backbone'):
            for module in model.modules():
                if run := getattr(module, name, None):
                    return run(images)
        return model(images)

    def predict(self, model: nn.Module, images: Tensor, number: int) -> Predictions:
        """Run preprocessed images as an exported graph does.

        ``number`` is the number of images, as the batch dimension may be dynamic.
        """
        return model(images, mode='tensor')

    def output_names(self, model: nn.Module) -> tuple[str, ...]:
        """Return the names of the outputs of :meth:`predict`; empty for defaults.

        Graphs with named outputs list the objects of one image at a time.
        """
        return ()

    def caller_steps(self, model: nn.Module) -> list[dict]:
        """Return the task-specific steps that a caller runs after a graph."""
        return []

    def takes_padding(self, model: nn.Module) -> bool:
        """Return whether graphs take images that are padded to their size."""
        return False

    def without_heads(self, model: nn.Module) -> str | None:
        """Return which head a graph lacks and why, or None."""
        return None

    def divergence(self, model: nn.Module) -> Callable[[Tensor, Tensor], Tensor]:
        """Return the loss between :meth:`outputs` of a model and of its teacher."""
        heads = (getattr(model, head, None) for head in self.heads)
        num_classes = [getattr(head, 'num_classes', None) or 0 for head in heads]
        of_classes = self.classifies and max(num_classes, default=0) > 1
        return class_divergence if of_classes else map_divergence

    def metric_values(self, metric: BaseMetric, values: Values) -> Values:
        """Return the values of a metric, including those that it omitted.

        Names are those that the metric returns, without the prefixes of evaluators.
        """
        return values

    def image_statistics(
        self, metric: BaseMetric, results: list
    ) -> dict[str, ImageStatistics]:
        """Return the per-image statistics of a metric, by the name of its value."""
        return {}

    def draw(
        self,
        visualizer: Visualizer,
        name: str,
        image: np.ndarray,
        sample: BaseDataElement,
        **settings,
    ) -> None:
        """Draw a sample on an RGB image ``(H, W, 3)``."""
        visualizer.add_datasample(name, image, data_sample=sample, **settings)


def as_tuple(predictions: Predictions) -> tuple[Tensor, ...]:
    """Return predictions as a tuple."""
    return (predictions,) if isinstance(predictions, Tensor) else tuple(predictions)


class OtherTask(Task):
    """Fallback for models that belong to no other task."""

    heads = ('head', 'decode_head')
    classifies = True
    higher = ('agreement',)  # of make_elastic without labels
    lower = ('mae', 'mse', 'loss')
    ranking = ('agreement',)
    saving_keys = ('out_file_path',)  # mmengine's own


def class_divergence(found: Tensor, target: Tensor) -> Tensor:
    """Return the mean Kullback-Leibler divergence of class probabilities."""
    found, target = (softmax_logits(x.float()).log_softmax(1) for x in (found, target))
    return (target.exp() * (target - found)).sum(1).mean()


def label_divergence(found: Tensor, target: Tensor) -> Tensor:
    """Return the mean divergence of independent labels, each with its own sigmoid."""
    return class_divergence(found.reshape(-1, 1), target.reshape(-1, 1))


def softmax_logits(logits: Tensor) -> Tensor:
    """Return logits for a softmax: one logit, of a sigmoid, becomes two."""
    if logits.shape[1] > 1:
        return logits
    return torch.cat([torch.zeros_like(logits), logits], 1)


def map_divergence(found: Tensor, target: Tensor) -> Tensor:
    """Return the mean squared error divided by the variance of the target."""
    found, target = found.float(), target.float()
    return (found - target).square().mean() / target.var()


TASKS: list[Task] = []
OTHER = OtherTask()
know_metrics(OTHER.higher, OTHER.lower, OTHER.ranking)


def register_task(task: type[T]) -> type[T]:
    """Register a task class (decorator)."""
    TASKS.append(task())
    know_metrics(task.higher, task.lower, task.ranking)
    return task


def task_of(part: object) -> Task:
    """Return the task of a model, metric or visualizer of an mm package.

    The model may be wrapped.
    """
    parts = part.modules() if isinstance(part, nn.Module) else [part]
    for kind in (name for each in parts for name in class_names(each)):
        for task in TASKS:
            if kind in task.classes:
                return task
    return OTHER


def class_names(part: object) -> list[str]:
    """Return the class names of an object in method resolution order."""
    return [kind.__name__ for kind in type(part).__mro__]


def is_method(part: object, name: str, *owners: str) -> bool:
    """Return whether a method is defined by a class with one of the given names."""
    method = getattr(type(part), name, None)
    return getattr(method, '__qualname__', '') in [f'{own}.{name}' for own in owners]


def known(attribute: str) -> set[str]:
    """Return the values of an attribute over all tasks."""
    return {value for task in (OTHER, *TASKS) for value in getattr(task, attribute)}


def known_scopes() -> tuple[str, ...]:
    """Return the mm packages of all tasks."""
    return tuple(dict.fromkeys(task.scope for task in TASKS if task.scope))


def parts_for(cfg: Mapping) -> list[str]:
    """Return the modules that register classes for the mm package of a config."""
    scope = cfg.get('default_scope')
    return [task.parts for task in TASKS if task.parts and task.scope == scope]


def import_parts_for(cfg: Mapping) -> None:
    """Register all classes of the mm package of a config, and ours for it.

    A config needs no ``custom_imports`` for them, nor for operators of mmcv.
    """
    scope = cfg.get('default_scope')
    if scope not in known_scopes():
        return
    with quiet_imports():
        import_module('snnet_mm.utils.torchvision_ops').install()  # slow to import
        for module in parts_for(cfg):
            import_module(module)
        import_module(f'{scope}.utils').register_all_modules(False)


def check_saved(evaluator: Evaluator, key: str, number: int) -> None:
    """Raise if metrics save predictions that several stitches would overwrite."""
    expected = f'None: {number} stitches would overwrite each other'
    for metric in evaluator.metrics:
        for name in sorted(known('saving_keys')):
            folder = getattr(metric, name, None)
            # mm names files by image at most, not by stitch.
            check(number == 1 or not folder, f'{key}.{name}', folder, expected)


def check_partial(evaluator: Evaluator, options: str) -> None:
    """Raise if metrics count omitted images as missed."""
    for metric in evaluator.metrics:
        exact = task_of(metric).exact_metric
        expected = f"type='{exact}', which does not count left-out images as missed "
        right = exact in (None, *class_names(metric))
        check(right, 'test_evaluator', type(metric).__name__, f'{expected}({options})')
