"""What the graphs of a model take, do and give, and what is left to their caller."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from mmengine.config import Config
from torch import nn

from snnet_mm.models import model_config

from .graph import (
    INPUT,
    Predictions,
    as_tuple,
    is_detector,
    output_names,
    takes_rgb,
)
from .single import inference_pipeline


@dataclass(frozen=True)
class GraphDescription:
    """Input, task and surroundings of a model's graphs, as the manifest says them.

    ``before`` and ``after`` are the steps that a caller takes, on images as they are
    read and on predictions; steps of a pipeline without a name of ours keep theirs.
    """

    task: str
    size: tuple[int, int]
    channels: str
    mean: Sequence[float] | None
    std: Sequence[float] | None
    before: Sequence[dict]
    after: Sequence[dict]
    classes: Sequence[str]
    palette: Sequence[Sequence[int]]

    @classmethod
    def of(
        cls, cfg: Config, model: nn.Module, size: tuple[int, int]
    ) -> 'GraphDescription':
        """Describe the graphs of a model for images of a size."""
        preprocessor = model_config(cfg).get('data_preprocessor') or {}
        task = task_of(model)
        meta = getattr(model, 'dataset_meta', None) or {}
        pipeline = inference_pipeline(cfg) if cfg.get('test_dataloader') else ()
        channels = 'RGB' if takes_rgb(cfg) else 'BGR'
        return cls(
            task,
            size,
            channels,
            *(preprocessor.get(key) for key in ('mean', 'std')),
            [
                *_steps_before(pipeline),
                *_passes(model, size),
                dict(step='channels', order=channels),
                dict(step='batch', layout='NCHW', dtype='float32', range=[0, 255]),
            ],
            _steps_after(task, model),
            *(list(meta.get(key) or ()) for key in ('classes', 'palette')),
        )

    def manifest(self, predictions: Predictions) -> dict:
        """Return what the manifest says of graphs that predict the like."""
        about = asdict(self)
        size, shape = list(about.pop('size')), ['batch', 3, *self.size]
        images = dict(name=INPUT, dtype='float32', shape=shape, range=[0, 255])
        images |= {key: about.pop(key) for key in ('channels', 'mean', 'std')}
        tensors = as_tuple(predictions)
        names = zip(output_names(len(tensors)), tensors, strict=True)
        outputs = [
            dict(name=name, dtype='float32', shape=['batch', *tensor.shape[1:]])
            for name, tensor in names
        ]
        caller = {key: about.pop(key) for key in ('before', 'after')}
        graph = dict(normalises=self.mean is not None, resizes_images=False)
        resized = self.task in ('segmentation', 'depth')
        graph |= dict(resizes_predictions_to=size if resized else None)
        return dict(input=images, outputs=outputs, graph=graph, caller=caller) | about


def task_of(model: nn.Module) -> str:
    """Return the task of a model of mmseg, mmdet or mmpretrain."""
    if is_detector(model):
        return 'detection'
    if not hasattr(model, 'encode_decode'):
        return 'classification'
    # mmseg's depth estimators are segmentors but for this method.
    return 'depth' if hasattr(model, 'slide_flip_inference') else 'segmentation'


def _steps_before(pipeline: Sequence[dict]) -> list[dict]:
    """Return a test pipeline as the manifest says it, with sizes height first."""
    steps = []
    for step in pipeline:
        more = {key: value for key, value in step.items() if key != 'type'}
        name = getattr(step['type'], '__name__', step['type']).rpartition('.')[2]
        if name == 'Resize' and 'scale' in more:
            scale = more['scale']
            width, height = (scale, scale) if isinstance(scale, int) else scale
            about = dict(size=[height, width], keep_ratio=more.get('keep_ratio', False))
            how = more.get('interpolation', 'bilinear')
            steps.append(dict(step='resize', **about, interpolation=how))
        elif not name.startswith(('Load', 'Pack')):
            steps.append(dict(step=name, **more))
    return steps


def _passes(model: nn.Module, size: tuple[int, int]) -> list[dict]:
    """Return the steps by which a segmentor predicts an image in several passes."""
    settings = getattr(model, 'test_cfg', None) or {}
    mode, steps = str(settings.get('mode', '')), []
    if 'slide' in mode:
        stride = list(settings['stride'])
        steps.append(dict(step='windows', size=list(size), stride=stride))
    if settings.get('flip') or 'flip' in mode:
        steps.append(dict(step='flip_average'))
    return steps


def _steps_after(task: str, model: nn.Module) -> list[dict]:
    if task == 'detection':
        return [dict(step='heads', of='the mm model')]
    if task == 'classification':
        return [dict(step='softmax', axis=1), dict(step='argmax', axis=1)]
    corners = bool(model.align_corners)
    resize = dict(step='resize', size='image', interpolation='bilinear')
    steps = [resize | dict(align_corners=corners)]
    if task == 'segmentation' and model.out_channels > 1:
        steps.append(dict(step='argmax', axis=1))
    elif task == 'segmentation':
        threshold = model.decode_head.threshold
        steps += [dict(step='sigmoid'), dict(step='threshold', above=threshold)]
    return steps
