"""mm's own inferencers for models whose stitch can be switched."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from mmengine.infer import BaseInferencer
from mmengine.logging import MMLogger
from mmengine.registry import TRANSFORMS, init_default_scope
from mmengine.structures import BaseDataElement
from torch import nn

from snnet_mm.anchors import image_channels
from snnet_mm.evaluation import as_picture
from snnet_mm.runtime import Detections, Panoptic
from snnet_mm.runtime.image_io import SUFFIXES as IMAGE_SUFFIXES
from snnet_mm.tasks import TASKS, task_of
from snnet_mm.utils import check, quiet_terminal, refusal
from snnet_mm.utils.configs import inference_pipeline, step_name


def init_inferencer(model: nn.Module) -> BaseInferencer:
    """Build the inferencer of the model's own package around the model.

    It runs the active stitch, which :func:`set_stitch` can change between calls::

        inferencer = init_inferencer(model)
        inferencer('a.jpg', out_dir='out')
        set_stitch(model, 30)
        inferencer(['a.jpg', array], batch_size=2)['predictions']

    Calls accept the inputs of :func:`list_images`, and the package's other arguments.
    """
    cfg, task = deepcopy(model.cfg), task_of(model)
    # Another model may have been loaded since.
    init_default_scope(cfg.get('default_scope') or 'mmengine')
    expected = f'a model of {", ".join(t.name for t in TASKS if t.inferencer)}'
    check(task.inferencer, 'model.type', type(model).__name__, expected)
    for key in ('test_dataloader', 'visualizer'):
        check(cfg.get(key), key, cfg.get(key), f'a {key}, which inference needs')
    module, name = task.inferencer
    base, channels = getattr(import_module(module), name), image_channels(model)
    (loader, *steps), files = inference_pipeline(cfg), channels == 3
    if not files or step_name(loader) != 'LoadImageFromFile':
        # mm's inferencers read files in three channels only, so they get arrays.
        read = TRANSFORMS.build(loader)
        loader, files = dict(type='LoadImageFromFile'), False

    class StitchInferencer(base):
        """The package's inferencer, around a model that is built."""

        def _init_model(self, *_: object) -> nn.Module:
            return model

        def _inputs_to_list(self, inputs: Any) -> list[str | np.ndarray]:
            listed = list_images(inputs, channels)
            if files:
                return listed
            return [_read(read, i) if isinstance(i, str) else i for i in listed]

        def visualize(self, inputs: list, *args, **kwargs) -> object:
            # Arrays are predicted as BGR, but would be drawn as RGB.
            shown = [i if isinstance(i, str) else _as_rgb(i) for i in inputs]
            return super().visualize(shown, *args, **kwargs)

        def __call__(self, *args, **kwargs) -> dict | list:
            with no_progress_bar() if classifies else nullcontext():
                return super().__call__(*args, **kwargs)

    cfg.test_dataloader.dataset.pipeline = [loader, *steps]
    classifies = task.name == 'classification'
    # mmengine warns of registries that the package does not have.
    with quiet_terminal(MMLogger.get_current_instance(), logging.ERROR):
        if classifies:
            model._config = cfg  # which mmpretrain's inferencer reads
            classes = model.dataset_meta['classes']
            inferencer = StitchInferencer(model, classes=classes)
            visualization = import_module('mmpretrain.visualization')
            inferencer.visualizer = visualization.UniversalVisualizer()
        else:
            device = next(model.parameters()).device.type
            inferencer = StitchInferencer(cfg, device=device)
            inferencer.show_progress = False  # no argument of every package
    return inferencer


@contextmanager
def no_progress_bar() -> Iterator[None]:
    """Hide the progress bar of mmpretrain's inferencers.

    Written for mmpretrain 1.3, tested with onedl-mmpretrain 1.3.6. Its inferencers lack
    the ``show_progress`` of mmseg's and mmdet's, and their bar only reads this global,
    which is restored because the user's own code may share it. If an upgrade moves the
    global, ``test_init_inferencer_shows_no_progress_bar`` fails. If it adds
    ``show_progress``, set that and remove this function.
    """
    progress = import_module('mmpretrain.utils.progress')
    before, progress.disable_progress_bar = progress.disable_progress_bar, True
    try:
        yield
    finally:
        progress.disable_progress_bar = before


class _Kept:
    """An inferencer and what it was built for; copies and pickles hold none."""

    def __init__(self) -> None:
        self.built_for = self.inferencer = None

    def __reduce__(self) -> tuple:
        return _Kept, ()


def inferencer_of(model: nn.Module) -> BaseInferencer:
    """Return the model's inferencer, built again if its config or device changed."""
    kept = vars(model).setdefault('_kept_inferencer', _Kept())
    device = next(model.parameters()).device
    now = repr((model.cfg, model.dataset_meta, device))
    if kept.built_for != now:
        kept.inferencer, kept.built_for = init_inferencer(model), now
    # Another model may have been used since; files are numbered from 0 in every call.
    init_default_scope(model.cfg.get('default_scope') or 'mmengine')
    kept.inferencer.num_visualized_imgs = kept.inferencer.num_pred_imgs = 0
    return kept.inferencer


def predictions_of(found: dict | list | BaseDataElement) -> list:
    """Return the prediction for each image from an inferencer's data samples.

    Predictions have the format of :meth:`StitchRuntime.predict_batch`.
    """
    return [_prediction(sample) for sample in _samples(found)]


def _samples(found: dict | list | BaseDataElement) -> list[BaseDataElement]:
    found = found['predictions'] if isinstance(found, dict) else found
    # mmseg's inferencer returns the sample of a single image without a list.
    return found if isinstance(found, list) else [found]


def _prediction(sample: BaseDataElement) -> np.ndarray | Detections | Panoptic:
    objects = None
    if 'pred_instances' in sample:
        found = sample.pred_instances.cpu().numpy()
        objects = Detections(
            found.bboxes, found.scores, found.labels, found.get('masks')
        )
    if 'pred_panoptic_seg' in sample:
        return Panoptic(sample.pred_panoptic_seg.sem_seg[0].cpu().numpy(), objects)
    if objects is not None:
        return objects
    if 'pred_score' in sample:
        return sample.pred_score.cpu().numpy()
    key = 'pred_depth_map' if 'pred_depth_map' in sample else 'pred_sem_seg'
    return sample.get(key).data[0].cpu().numpy()


def _as_rgb(image: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(as_picture(image)[..., ::-1])


def _read(loader: Any, file: str) -> np.ndarray:
    """Read an image ``(H, W, C)`` with the loader of a pipeline."""
    try:
        image = loader(dict(img_path=file))['img']
    except (AssertionError, OSError) as error:
        expected = f'files that {type(loader).__name__} can read ({error})'
        raise refusal('argument: inputs', file, expected) from error
    return image[..., None] if image.ndim == 2 else image


def list_images(inputs: Any, channels: int = 3) -> list[str | np.ndarray]:
    """List the images of a file, array, folder, or list of files and arrays.

    Arrays are ``(H, W, channels)`` as mm loads images: of three channels, uint8 BGR.
    """
    if isinstance(inputs, (str, os.PathLike)) and Path(inputs).is_dir():
        files = sorted(f for f in Path(inputs).iterdir() if f.name[0] != '.')
        images = [f for f in files if f.suffix.lower() in IMAGE_SUFFIXES]
    else:
        images = inputs if isinstance(inputs, (list, tuple)) else [inputs]
    expected = f'image files that exist ({", ".join(IMAGE_SUFFIXES)}), folders with '
    expected += f'images, and non-empty arrays (H, W, {channels})'
    expected += ' of uint8 BGR' * (channels == 3)
    check(images, 'argument: inputs', inputs, expected)
    listed = []
    for image in images:
        if isinstance(image, np.ndarray):
            right = image.ndim == 3 and image.size and image.shape[2] == channels
            right = right and (channels != 3 or image.dtype == np.uint8)
            found = f'an array of shape {image.shape} and type {image.dtype}'
            check(right, 'argument: inputs', found, expected)
            listed.append(np.ascontiguousarray(image))
        else:
            is_path = isinstance(image, (str, os.PathLike))
            check(
                is_path and Path(image).is_file(), 'argument: inputs', image, expected
            )
            listed.append(os.fspath(image))
    return listed
