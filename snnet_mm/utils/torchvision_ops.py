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
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec

import torch
from mmengine.logging import print_log
from torch import Tensor
from torchvision import ops

EXTENSION = 'mmcv._ext'
# mmcv's names (y, x) of torchvision's arguments, in both deformable convolutions.
GEOMETRY = dict(
    stride=('dH', 'dW'), padding=('padH', 'padW'), dilation=('dilationH', 'dilationW')
)
MODULATED_GEOMETRY = dict(
    stride=('stride_h', 'stride_w'),
    padding=('pad_h', 'pad_w'),
    dilation=('dilation_h', 'dilation_w'),
)


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
    if settings['pool_mode'] == 0:
        _missing("roi_align with pool_mode='max'")
    output.copy_(ops.roi_align(input, rois, **_roi_settings(settings)))


def roi_align_backward(
    grad_output: Tensor,
    rois: Tensor,
    argmax_y: Tensor,
    argmax_x: Tensor,
    grad_input: Tensor,
    **settings,
) -> None:
    """Write the gradient of the maps, which does not depend on their values."""
    run = partial(ops.roi_align, boxes=rois, **_roi_settings(settings))
    _write_gradients(run, [grad_input], grad_output, [grad_input])


def _roi_settings(settings: dict) -> dict:
    size = settings['aligned_height'], settings['aligned_width']
    names = 'spatial_scale', 'sampling_ratio', 'aligned'
    return dict(output_size=size) | {name: settings[name] for name in names}


def deform_conv_forward(
    input: Tensor, weight: Tensor, offset: Tensor, output: Tensor, *buffers, **settings
) -> None:
    """Write a deformable convolution to ``output``."""
    output.copy_(ops.deform_conv2d(input, offset, weight, **_geometry(settings)))


def deform_conv_backward_input(*tensors: Tensor, **settings) -> None:
    """Write the gradients of maps and offsets."""
    input, offset, grad_output, grad_input, grad_offset, weight, _ = tensors
    run = partial(ops.deform_conv2d, weight=weight, **_geometry(settings))
    _write_gradients(run, [input, offset], grad_output, [grad_input, grad_offset])


def deform_conv_backward_parameters(*tensors: Tensor, **settings) -> None:
    """Write the gradient of the weight, which does not depend on its values."""
    input, offset, grad_output, grad_weight, *_ = tensors
    run = partial(ops.deform_conv2d, input, offset, **_geometry(settings))
    _write_gradients(run, [grad_weight], grad_output, [grad_weight])


def modulated_deform_conv_forward(*tensors: Tensor, **settings) -> None:
    """Write a modulated deformable convolution to the tensor after the mask."""
    input, weight, bias, _, offset, mask, output, _ = tensors
    bias = [bias] * settings['with_bias']
    output.copy_(_modulated(settings)(input, offset, mask, weight, *bias))


def modulated_deform_conv_backward(*tensors: Tensor, **settings) -> None:
    """Write the gradients of all tensors; a bias, if any, comes last."""
    input, weight, bias, _, offset, mask, _, *grads, grad_output = tensors
    grad_input, grad_weight, grad_bias, grad_offset, grad_mask = grads
    inputs = [input, offset, mask, weight, bias][: 4 + settings['with_bias']]
    grads = [grad_input, grad_offset, grad_mask, grad_weight, grad_bias][: len(inputs)]
    _write_gradients(_modulated(settings), inputs, grad_output, grads)


def _modulated(settings: dict) -> Callable[..., Tensor]:
    geometry = _geometry(settings)

    def run(x: Tensor, offset: Tensor, mask: Tensor, *weights: Tensor) -> Tensor:
        return ops.deform_conv2d(x, offset, *weights, mask=mask, **geometry)

    return run


def _geometry(settings: dict) -> dict[str, tuple[int, int]]:
    names = MODULATED_GEOMETRY if 'stride_h' in settings else GEOMETRY
    return {key: (settings[y], settings[x]) for key, (y, x) in names.items()}


def _write_gradients(
    run: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    grad_output: Tensor,
    grads: Sequence[Tensor],
) -> None:
    """Run a function again and write the gradients of its inputs to ``grads``."""
    with torch.enable_grad():
        inputs = [x.detach().requires_grad_() for x in inputs]
        found = torch.autograd.grad(run(*inputs), inputs, grad_output)
    for grad, value in zip(grads, found, strict=True):
        grad.copy_(value)
