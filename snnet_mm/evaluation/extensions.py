"""Rules for classes of other packages, filled by integrations.

``snnet_mm.integrations`` registers its entries when ``snnet_mm`` is imported.
"""

from collections.abc import Callable

from mmengine.evaluator import BaseMetric
from mmengine.visualization import Visualizer
from torch import Tensor, nn

Forward = Callable[[nn.Module, Tensor], object]
# A test of models, and how to run those that pass it from images to raw output.
FORWARDS: list[tuple[Callable[[nn.Module], bool], Forward]] = []
# Tests of models that need images as they are, as those that locate objects do.
UNSIZED: list[Callable[[nn.Module], bool]] = []
# Attributes of metrics that say where predictions are saved; mmengine's own first.
SAVING_KEYS = ['out_file_path']
# Tests of metrics that are wrong on a part of a data set, and what to use instead.
WHOLE_DATA_METRICS: list[tuple[Callable[[BaseMetric], bool], str]] = []
# A test of metrics that are silent where nothing was found, and what they would say.
EMPTY_METRICS: list[
    tuple[Callable[[BaseMetric], bool], Callable[[BaseMetric], dict[str, float]]]
] = []
# A test of metrics, and what makes up some of their values by name, given all results:
# numerators and denominators (images, columns), and a scale; see ImageScores.
IMAGE_STATISTICS: list[
    tuple[Callable[[BaseMetric], bool], Callable[[list], dict[str, tuple]]]
] = []
# A test of visualizers, and how to draw a sample with those that pass it.
DRAWERS: list[tuple[Callable[[Visualizer], bool], Callable]] = []
