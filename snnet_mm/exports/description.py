"""Inputs and outputs of a model's graphs, and the steps left to the caller."""

from collections.abc import Sequence

import numpy as np
from mmengine.config import Config
from torch import nn

from snnet_mm.anchors import image_channels
from snnet_mm.costs import window_of
from snnet_mm.runtime.manifest import AS_LOADED
from snnet_mm.runtime.steps import KNOWN
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import Predictions, as_tuple
from snnet_mm.utils import check, is_number
from snnet_mm.utils.configs import model_config, step_name

from .normalization import normalization, pipeline_of, split_normalize

INPUT, OUTPUT = 'images', 'predictions'
RESIZING = dict(backend='cv2', interpolation='bilinear')  # mm's defaults


def describe_graphs(
    cfg: Config,
    model: nn.Module,
    size: tuple[int, int],
    predictions: Predictions,
) -> dict:
    """Return the manifest's description of a model's graphs for images of a size."""
    meta, tensors = getattr(model, 'dataset_meta', None) or {}, as_tuple(predictions)
    about, names = describe_input(cfg, model, size), output_names(model, len(tensors))
    batch = about['input']['shape'][0]
    palette = meta.get('palette') or ()  # or the word 'random'
    palette = () if isinstance(palette, str) else palette
    return about | dict(
        outputs=[
            dict(name=name, dtype='float32', shape=[batch, *tensor.shape[1:]])
            for name, tensor in zip(names, tensors, strict=True)
        ],
        task=_name_of(model),
        classes=list(meta.get('classes') or ()),
        palette=list(palette),
    )


def describe_input(cfg: Config, model: nn.Module, size: tuple[int, int]) -> dict:
    """Return the manifest's ``input`` and ``caller`` for images of a size.

    Pipeline steps unknown to the manifest keep their mm names.
    """
    preprocessor = model_config(cfg).get('data_preprocessor') or {}
    task, number = task_of(model), image_channels(model)
    reverses, mean, std = normalization(cfg)
    channels = ('RGB' if reverses else 'BGR') if number == 3 else AS_LOADED
    loaded = dict(dtype='float32', range=[0, 255])
    batch = 1 if task.output_names(model) else 'batch'
    images = dict(name=INPUT, shape=[batch, number, *size], channels=channels, **loaded)
    before, filled = _steps_of_pipeline(cfg, model)
    before.append(dict(step='channels', order=channels))
    padded = preprocessor.get('test_cfg') or {}
    divisor = preprocessor.get('pad_size_divisor', 1)
    if task.name != 'detection':
        padded = dict(size_divisor=divisor) if divisor > 1 else padded
    elif task.takes_padding(model):
        padded = dict(size=size)
    if padded:  # mm pads after normalisation
        empty = preprocessor.get('pad_value', preprocessor.get('pad_val', 0))
        value = np.add(mean or 0, np.multiply(std or 1, empty))
        value = np.broadcast_to(value, number).tolist()
        value = value if filled is None else filled[:: -1 if reverses else 1]
        more = {key: padded.get(key) for key in ('size', 'size_divisor')}
        before.append(dict(step='pad', value=value, **more))
    before += _passes(model, size)
    before.append(dict(step='batch', layout='NCHW', **loaded))
    after = task.caller_steps(model) or _steps_after(_name_of(model), model)
    images |= dict(mean=mean, std=std)
    return dict(input=images, caller=dict(before=before, after=after))


def left_of(cfg: Config, model: nn.Module) -> list[str]:
    """Return the test pipeline's steps that neither graphs nor the runtime run."""
    return sorted({step['step'] for step in _steps_of_pipeline(cfg, model)[0]} - KNOWN)


def _steps_of_pipeline(
    cfg: Config, model: nn.Module
) -> tuple[list[dict], list[float] | None]:
    """Return the steps of a test pipeline, and the pixel it pads with for a detector.

    mm treats padding by the pipeline as image content.
    """
    pipeline, filled = split_normalize(pipeline_of(cfg))[1], None
    number, detects = image_channels(model), task_of(model).name == 'detection'
    if detects:
        filled, pipeline = _split_padding(pipeline, number)
    return _steps_before(pipeline, number, detects), filled


def _name_of(model: nn.Module) -> str:
    task = task_of(model).name
    return 'classification' if task == 'other' else task


def output_names(model: nn.Module, number: int) -> list[str]:
    """Return the names of the outputs of a model's graph."""
    if names := task_of(model).output_names(model):
        return list(names[:number])
    return [OUTPUT] if number == 1 else [f'level_{i}' for i in range(number)]


def _steps_before(
    pipeline: Sequence[dict], channels: int, of_objects: bool
) -> list[dict]:
    """Convert a test pipeline to steps of the manifest, with sizes height first.

    mm places objects in the image by its last resizing alone, so that other steps are
    left to the caller if ``of_objects``.
    """
    steps, kinds = [], {'Resize', 'ResizeEdge'}
    resizings = sum(step_name(step) in kinds for step in pipeline)
    for step in pipeline:
        more = {key: value for key, value in step.items() if key != 'type'}
        name = step_name(step)
        how = {key: more.get(key) or value for key, value in RESIZING.items()}
        known = resizings == 1 or not of_objects
        if name == 'Resize' and 'scale' in more and known:
            keep_ratio = more.get('keep_ratio', False)
            about = dict(size=_height_first(more['scale']), keep_ratio=keep_ratio)
            steps.append(dict(step='resize', **about, **how))
        elif name == 'ResizeEdge' and known:
            about = dict(length=more['scale'], edge=more.get('edge', 'short'))
            steps.append(dict(step='resize_edge', **about, **how))
        elif name == 'CenterCrop' and not (more.get('auto_pad') or of_objects):
            size = _height_first(more['crop_size'])
            steps.append(dict(step='center_crop', size=size))
        elif name == 'LoadImageFromFile':
            colour = more.get('color_type', 'color')
            key = 'test_dataloader.dataset.pipeline.color_type'
            grey = f'images of {channels} channels, which the model takes'
            check(channels == 1 or colour != 'grayscale', key, colour, grey)
            # Floats are not resized as bytes are.
            floats = more.get('to_float32') and resizings
            if floats or colour.endswith('ignore_orientation'):
                steps.append(dict(step=name, **more))
        elif not name.startswith('Pack'):
            steps.append(dict(step=name, **more))
    return steps


def _height_first(size: int | Sequence[int]) -> list[int]:
    """Return height and width of a size of mm: one length, or width and height."""
    return [size, size] if isinstance(size, int) else [*size][::-1]


def _split_padding(
    pipeline: Sequence[dict], channels: int
) -> tuple[list[float] | None, list[dict]]:
    """Return the pixel that a pipeline pads with at its end, if any, and other steps.

    mmdet pads right and below.
    """
    steps = [step for step in pipeline if not step_name(step).startswith('Pack')]
    last = steps.pop() if steps else {}
    constant = last.get('padding_mode', 'constant') == 'constant'
    if step_name(last) != 'Pad' or not constant:
        return None, [*pipeline]
    value = last.get('pad_val', 0)
    value = value.get('img', 0) if isinstance(value, dict) else value
    values = [value] * channels if is_number(value) else value
    return [float(v) for v in values], steps


def _passes(model: nn.Module, size: tuple[int, int]) -> list[dict]:
    """Return the steps of a segmentor that predicts an image in several passes."""
    settings, steps = getattr(model, 'test_cfg', None) or {}, []
    if window_of(model) is not None:
        stride = list(settings['stride'])
        steps.append(dict(step='windows', size=list(size), stride=stride))
    if settings.get('mode') == 'slide_flip':
        steps.append(dict(step='flip_average', of='windows'))
    elif getattr(model, 'mirrors_images', False) and settings.get('flip'):
        steps.append(dict(step='flip_average', of='image'))
    return steps


def _steps_after(task: str, model: nn.Module) -> list[dict]:
    if task == 'detection':
        return [dict(step='heads', of='the mm model')]
    if hasattr(getattr(model, 'head', None), 'thr'):  # multi-label heads
        above, number = model.head.thr, model.head.topk
        chosen = dict(step='threshold', above=above)
        chosen = dict(step='top', number=number) if above is None else chosen
        return [dict(step='sigmoid'), chosen]
    if task == 'classification':
        return [dict(step='softmax', axis=1), dict(step='argmax', axis=1)]
    resize = dict(step='resize', size='image', interpolation='bilinear')
    steps = [resize | dict(align_corners=bool(model.align_corners))]
    if task == 'depth':
        return steps
    if model.out_channels > 1:
        return [*steps, dict(step='argmax', axis=1)]
    above = model.decode_head.threshold
    return [*steps, dict(step='sigmoid'), dict(step='threshold', above=above)]
