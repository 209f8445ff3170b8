"""Rules for classes of other packages, filled by integrations.

``snnet_mm.integrations`` registers its entries when ``snnet_mm`` is imported. Tables go
by the name of a class, or of one that it derives from; see :func:`rule_for`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TypeVar

from mmengine.evaluator import BaseMetric, Evaluator
from torch import Tensor, nn

from snnet_mm.utils import check

T = TypeVar('T')
Forward = Callable[[nn.Module, Tensor], object]
# How to run models from images to raw output, where that takes more than their forward.
FORWARDS: dict[str, Forward] = {}
# Models that need images as they are, as those that locate objects do.
UNSIZED: dict[str, bool] = {}
# Contexts for models that compute something from a data set before they predict. They
# give a call that does so for the active stitch and returns one that puts it back.
Prepare = Callable[[], Callable[[], None]]
DATA_OF_STITCH: dict[str, Callable[[nn.Module], AbstractContextManager[Prepare]]] = {}
# Attributes of metrics that say where predictions are saved; mmengine's own first.
SAVING_KEYS = ['out_file_path']
# What to use instead of metrics that are wrong on a part of a data set.
WHOLE_DATA_METRICS: dict[str, str | None] = {}
# Values of metrics that leave some out, or mark what is undefined in their own way.
Values = Mapping[str, object]
METRIC_VALUES: dict[str, Callable[[BaseMetric, Values], Values]] = {}
# What makes up some of the values of a metric by name, given all results: numerators
# and denominators (images, columns), and a scale; see ImageScores.
IMAGE_STATISTICS: dict[str, Callable[[list], dict[str, tuple]]] = {}
# How to draw a sample with a visualizer.
DRAWERS: dict[str, Callable] = {}
# The heads of detectors as graphs of their own; see head_graphs.
HEAD_GRAPHS: dict[str, Callable] = {}


def rule_for(part: object, table: Mapping[str, T]) -> T | None:
    """Return the entry of a table for the class of a part, None without one."""
    names = (kind.__name__ for kind in type(part).__mro__)
    return next((table[name] for name in names if name in table), None)


def check_saved(evaluator: Evaluator, key: str, number: int) -> None:
    """Refuse metrics that write predictions to files, which stitches would share."""
    what = f'None: {number} stitches would overwrite each other'
    for metric in evaluator.metrics:
        for name in SAVING_KEYS:
            folder = getattr(metric, name, None)
            # mm's names hold the image alone, or not even that.
            check(number == 1 or not folder, f'{key}.{name}', folder, what)


def check_partial(evaluator: Evaluator, options: str) -> None:
    """Raise for metrics that count images left out as missed."""
    for metric in evaluator.metrics:
        instead = rule_for(metric, WHOLE_DATA_METRICS)
        allowed = f'{instead}, which does not count images left out as missed '
        allowed += f'({options})'
        check(not instead, 'test_evaluator', type(metric).__name__, allowed)
