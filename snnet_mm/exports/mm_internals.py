"""Private parts of the mm packages that cannot be traced, each with its stand-in.

Written for mmseg 1.4, mmdet 3.5 and mmpretrain 1.3. The stand-ins are set on the copy
of a model that :class:`PredictionGraph` traces, never on the packages. If one no longer
gives what the package gives, tests/test_exports/test_mm_internals.py fails; if the
package can be traced itself, remove the function and its call.
"""

from torch import Tensor, nn


def make_traceable(model: nn.Module) -> None:
    """Replace methods of a model's parts that cannot be traced."""
    for module in model.modules():
        if hasattr(type(module), 'window_reverse'):
            module.window_reverse = _merge_windows
        # Activation checkpointing saves nothing in a graph.
        if getattr(module, 'with_cp', False):
            module.with_cp = False


def _merge_windows(windows: Tensor, height: int, width: int, *_) -> Tensor:
    """Join windows ``(B * n, size, size, C)`` to maps ``(B, height, width, C)``.

    Stands in for ``ShiftWindowMSA.window_reverse`` of all three packages, which divides
    floats and casts the batch size to an int, so that tracing fixes it.
    """
    size, channels = windows.shape[1], windows.shape[3]
    x = windows.view(-1, height // size, width // size, size, size, channels)
    return x.transpose(2, 3).reshape(-1, height, width, channels)
