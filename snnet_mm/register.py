"""Import of all rooms, which registers their classes in mmengine's root registries."""

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
