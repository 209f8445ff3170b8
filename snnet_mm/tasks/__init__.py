"""Tasks, one module each with the same structure, and their registry."""

from .base import (
    TASKS,
    Task,
    check_partial,
    check_saved,
    class_divergence,
    import_parts_for,
    known,
    known_scopes,
    map_divergence,
    parts_for,
    register_task,
    softmax_logits,
    task_of,
)
from .classification import Classification
from .depth import Depth
from .detection import Detection
from .segmentation import Segmentation
