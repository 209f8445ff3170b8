"""Inputs and outputs of a model's graphs, and the steps left to the caller."""

from collections.abc import Sequence

from mmengine.config import Config
from torch import nn

from snnet_mm.anchors import image_channels
from snnet_mm.costs import window_of
from snnet_mm.runtime.manifest import AS_LOADED
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import Predictions, as_tuple
from snnet_mm.utils import check, is_number
from snnet_mm.utils.configs import (
    inference_pipeline,
    model_config,
    step_name,
    takes_rgb,
)

INPUT, OUTPUT = 'images', 'predictions'


def describe_graphs(
    cfg: Config,
    model: nn.Module,
    size: tuple[int, int],
    predictions: Predictions,
) -> dict:
    """Return the manifest's description of a model's graphs for images of a size.

    Pipeline steps unknown to the manifest keep their mm names.
    """
    preprocessor = model_config(cfg).get('data_preprocessor') or {}
    task = task_of(model).name
    task = 'classification' if task == 'other' else task
    meta = getattr(model, 'dataset_meta', None) or {}
    pipeline = inference_pipeline(cfg) if cfg.get('test_dataloader') else ()
    number, tensors = image_channels(model), as_tuple(predictions)
    reversed_ = number == 3 and takes_rgb(cfg)
    channels = ('RGB' if reversed_ else 'BGR') if number == 3 else AS_LOADED
    loaded = dict(dtype='float32', range=[0, 255])
    batch = 1 if task_of(model).output_names(model) else 'batch'
    images = dict(name=INPUT, shape=[batch, number, *size], channels=channels, **loaded)
    images |= {key: preprocessor.get(key) for key in ('mean', 'std')}
    after = task_of(model).caller_steps(model)
    filled = _padding(pipeline, number) if task == 'detection' else None
    if filled is not None:  # mm treats padding by the pipeline as image content
        pipeline = [step for step in pipeline if step_name(step) != 'Pad']
    before = [*_steps_before(pipeline, number), dict(step='channels', order=channels)]
    padded = preprocessor.get('test_cfg') or {}
    padded = dict(size=size) if task_of(model).takes_padding(model) else padded
    if padded:  # mm pads after normalisation
        empty = preprocessor.get('pad_value', preprocessor.get('pad_val', 0))
        mean, scale = (images[key] or [n] for key, n in (('mean', 0), ('std', 1)))
        mean, scale = (x * number if len(x) == 1 else x for x in (mean, scale))
        value = [m + empty * s for m, s in zip(mean, scale, strict=True)]
        value = value if filled is None else filled[:: -1 if reversed_ else 1]
        more = {key: padded.get(key) for key in ('size', 'size_divisor')}
        before.append(dict(step='pad', value=value, **more))
    before += _passes(model, size)
    before.append(dict(step='batch', layout='NCHW', **loaded))
    names = output_names(model, len(tensors))
    palette = meta.get('palette') or ()  # or the word 'random'
    palette = () if isinstance(palette, str) else palette
    return dict(
        input=images,
        outputs=[
            dict(name=name, dtype='float32', shape=[batch, *tensor.shape[1:]])
            for name, tensor in zip(names, tensors, strict=True)
        ],
        caller=dict(before=before, after=after or _steps_after(task, model)),
        task=task,
        classes=list(meta.get('classes') or ()),
        palette=list(palette),
    )


def output_names(model: nn.Module, number: int) -> list[str]:
    """Return the names of the outputs of a model's graph."""
    if names := task_of(model).output_names(model):
        return list(names[:number])
    return [OUTPUT] if number == 1 else [f'level_{i}' for i in range(number)]


def _steps_before(pipeline: Sequence[dict], channels: int) -> list[dict]:
    """Convert a test pipeline to steps of the manifest, with sizes height first."""
    steps = []
    for step in pipeline:
        more = {key: value for key, value in step.items() if key != 'type'}
        name = step_name(step)
        known = name == 'Resize' and 'scale' in more
        # Pillow interpolates differently, and runtimes support only one resize step.
        known = known and more.get('backend', 'cv2') == 'cv2'
        if known and 'resize' not in [step['step'] for step in steps]:
            scale = more['scale']
            width, height = (scale, scale) if isinstance(scale, int) else scale
            about = dict(size=[height, width], keep_ratio=more.get('keep_ratio', False))
            how = more.get('interpolation', 'bilinear')
            steps.append(dict(step='resize', **about, interpolation=how))
        elif name == 'LoadImageFromFile':
            colour = more.get('color_type', 'color')
            key = 'test_dataloader.dataset.pipeline.color_type'
            grey = f'images of {channels} channels, which the model takes'
            check(channels == 1 or colour != 'grayscale', key, colour, grey)
            if more.get('to_float32'):  # resizing floats and bytes differs
                steps.append(dict(step=name, to_float32=True))
        elif not name.startswith('Pack'):
            steps.append(dict(step=name, **more))
    return steps


def _padding(pipeline: Sequence[dict], channels: int) -> list[float] | None:
    """Return the pixel with which a pipeline pads images, right and below, if any."""
    for step in pipeline:
        constant = step.get('padding_mode', 'constant') == 'constant'
        if step_name(step) == 'Pad' and constant:
            value = step.get('pad_val', 0)
            value = value.get('img', 0) if isinstance(value, dict) else value
            values = [value] * channels if is_number(value) else value
            return [float(v) for v in values]
    return None


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
