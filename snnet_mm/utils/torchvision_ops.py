"""mmcv's operators, based on torchvision, for an mmcv without compiled operators.

mmcv looks up all operators in its extension at ``import mmcv.ops``, and mmdet imports
them everywhere. :func:`install` registers this module as that extension. Only
``mmcv/ops/*.py`` of mmcv 2 calls these functions. It passes output buffers, and buffers
that only the compiled operators need. If mmcv changes its calls,
tests/test_utils/test_torchvision_ops.py fails; ``make ops`` compiles mmcv's own
operators. Focal losses and deformable attention are not here: on a CPU, mmcv and mmdet
use their own PyTorch code. Functions accept CUDA tensors, but are untested on a GPU.
"""

import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch
from mmengine.logging import print_log
from torch import Tensor
from torchvision import ops

EXTENSION = 'mmcv._ext'


def install() -> None:
    """Register this module as mmcv's extension, unless a compiled one exists."""
    if find_spec('mmcv') is not None and find_spec(EXTENSION) is None:
        sys.modules[EXTENSION] = sys.modules[__name__]
        _replace_placeholders()


def log_use() -> None:
    """Log, once, that the operators of this module are in use."""
    if sys.modules.get(EXTENSION) is sys.modules[__name__]:
        message = "mmcv has no compiled operators: detection runs on torchvision's"
        print_log(message, logger='current')


def _replace_placeholders() -> None:
    """Replace placeholders of operators in mm modules that were imported earlier.

    ``import mmseg.models`` imports heads of mmdet. Without ``mmcv.ops``, they define
    placeholders of the same names that raise when called.
    """
    operators = vars(import_module('mmcv.ops'))
    for name, module in [*sys.modules.items()]:
        if name.startswith(('mmdet.', 'mmseg.', 'mmpretrain.')):
            for key, value in [*vars(module).items()]:
                if key in operators and getattr(value, '__module__', None) == name:
                    setattr(module, key, operators[key])


def __getattr__(name: str) -> Callable[..., None]:
    """Return a function that raises, as mmcv looks up all operators on import."""
    if name.startswith('_'):
        raise AttributeError(f'module {__name__} has no attribute {name}')
    return partial(_missing, name)


def _missing(name: str, *args, **kwargs) -> None:
    raise NotImplementedError(
        f"mmcv's {name} needs compiled operators, and this mmcv has none; `make ops` "
        'in a checkout of snnet_mm compiles them'
    )


def nms(boxes: Tensor, scores: Tensor, iou_threshold: float, offset: int) -> Tensor:
    """Return the indices of kept boxes, in descending order of scores.

    ``offset`` is added to widths and heights, which are differences of pixel indices
    in older models.
    """
    scores = scores.type_as(boxes)  # scores are in half precision under AMP
    # Sort ties as mmcv does; torchvision's stable sort keeps their order.
    order = scores.argsort(descending=True)
    boxes = (boxes + boxes.new_tensor([0, 0, offset, offset]))[order]
    return order[ops.nms(boxes, scores[order], iou_threshold)]


def roi_align_forward(
    input: Tensor, rois: Tensor, output: Tensor, *argmax: Tensor, **settings
) -> None:
    """Write the averages of maps in regions ``(K, 5)`` to ``output``."""
    output.copy_(_roi_align(input, rois, settings))


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    **settings,
) -> None:
    """Write the gradient of the maps, which does not depend on their values."""
    with torch.enable_grad():
        maps = grad_input.detach().requires_grad_()
        pooled = _roi_align(maps, rois, settings)
        grad_input.copy_(torch.autograd.grad(pooled, maps, grad_output)[0])


def _roi_align(maps: Tensor, rois: Tensor, settings: dict) -> Tensor:
    if settings['pool_mode'] == 0:
        _missing("roi_align with pool_mode='max'")
    size = settings['aligned_height'], settings['aligned_width']
    names = 'spatial_scale', 'sampling_ratio', 'aligned'
    return ops.roi_align(maps, rois, size, **{name: settings[name] for name in names})
