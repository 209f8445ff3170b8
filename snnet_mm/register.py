"""Import of all subpackages that register classes in mmengine's root registries."""

from . import (  # noqa: F401
    anchors,
    bridging,
    costs,
    datasets,
    elastic,
    esta,
    evaluation,
    models,
    tasks,
    training,
)
