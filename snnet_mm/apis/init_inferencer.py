"""mm's own inferencers around a model that switches its stitch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from copy import deepcopy
from importlib import import_module
from pathlib import Path

import numpy as np
from mmengine.infer import BaseInferencer
from mmengine.registry import VISUALIZERS
from torch import nn

# By default scope of the config: where the package's inferencer is found. mmseg's
# serves depth estimators as well.
INFERENCERS = {
    'mmdet': ('mmdet.apis', 'DetInferencer'),
    'mmpretrain': ('mmpretrain.apis', 'ImageClassificationInferencer'),
    'mmseg': ('mmseg.apis', 'MMSegInferencer'),
}
OWN_ANNOTATION_LOADERS = ('LoadDepthMap',)
LOADER = 'LoadImageFromFile'
IMAGE_SUFFIXES = ('.bmp', '.jpeg', '.jpg', '.png', '.ppm', '.tif', '.tiff', '.webp')


def init_inferencer(model: nn.Module) -> BaseInferencer:
    """The inferencer of the model's own package, on images, arrays and folders.

    It runs whatever stitch is active, so :func:`set_stitch` works between its calls::

        inferencer = init_inferencer(model)
        inferencer('a.jpg', out_dir='out')
        set_stitch(model, 30)
        inferencer(['a.jpg', array], batch_size=2)['predictions']

    Images are file names or BGR arrays ``(H, W, 3)``. For the arguments of its calls
    see mmseg's ``MMSegInferencer``, mmdet's ``DetInferencer`` and mmpretrain's
    ``ImageClassificationInferencer``.

    Args:
        model: A model of :func:`init_model`.

    Raises:
        ValueError: If there is no inferencer for the config's default scope, or the
            config has no visualizer or no test pipeline that reads files. Calls raise
            it for images that do not exist, and folders without images.
    """
    scope = model.cfg.get('default_scope')
    if scope not in INFERENCERS:
        raise ValueError(
            f'default_scope={scope!r} has no inferencer here; allowed are '
            f'{sorted(INFERENCERS)} (config key: default_scope)'
        )
    for key in ('test_dataloader', 'visualizer'):
        if model.cfg.get(key) is None:
            raise ValueError(f'an inferencer needs a {key} (config key: {key})')
    _check_reads_files(model.cfg.test_dataloader.dataset, scope)
    module, name = INFERENCERS[scope]
    package_own = getattr(import_module(module), name)
    if scope == 'mmpretrain':
        return _of_mmpretrain(package_own, model)
    device = next(model.parameters()).device

    class Inferencer(package_own):
        """The package's own, but given a model, and strict about its images."""

        def _init_model(self, cfg, weights, device) -> nn.Module:
            return model

        def _init_pipeline(self, cfg):
            # The package knows its own loaders of annotations, which images lack.
            cfg = deepcopy(cfg)
            steps = cfg.test_dataloader.dataset.pipeline
            cfg.test_dataloader.dataset.pipeline = [
                step for step in steps if step['type'] not in OWN_ANNOTATION_LOADERS
            ]
            return super()._init_pipeline(cfg)

        def _inputs_to_list(self, inputs) -> list:
            return list_images(inputs)

    inferencer = Inferencer(model.cfg, device=device.type)
    inferencer.show_progress = False  # not every package takes it as an argument
    return inferencer


def _check_reads_files(dataset: Mapping, scope: str) -> None:
    """Refuse data that come without files, whose pipeline can read none."""
    steps = [step['type'] for step in dataset.get('pipeline', ())]
    steps = [getattr(step, '__name__', step) for step in steps]
    # mmpretrain's inferencer reads images by itself.
    if scope == 'mmpretrain' or any(step.endswith(LOADER) for step in steps):
        return
    raise ValueError(
        f'the test pipeline of {dataset.get("type")}, {steps}, reads no image files, '
        f'as that of generated scenes; wanted is one with {LOADER}, such as those of '
        'configs/camvid (config key: test_dataloader.dataset.pipeline)'
    )


def _of_mmpretrain(package_own: type, model: nn.Module) -> object:
    """The inferencer of mmpretrain, whose base is not mmengine's."""

    class Inferencer(package_own):
        """The package's own, strict about its images and without progress bars."""

        def __call__(
            self,
            inputs,
            return_datasamples: bool = False,
            batch_size: int = 1,
            **visualize_kwargs,
        ) -> list:
            images = list_images(inputs)
            batches = self.preprocess(images, batch_size)
            samples = [sample for data in batches for sample in self.forward(data)]
            painted = self.visualize(images, samples, **visualize_kwargs)
            return self.postprocess(samples, painted, return_datasamples)

    model._config = model.cfg  # where it looks for the config
    inferencer = Inferencer(model, classes=model.dataset_meta['classes'])
    inferencer.visualizer = VISUALIZERS.build(model.cfg.visualizer)
    return inferencer


def list_images(inputs) -> list[str | np.ndarray]:
    """Images of an image file, an array, a folder, or a list of files and arrays.

    Raises:
        ValueError: If there are none, or a file does not exist.
    """
    if isinstance(inputs, (str, os.PathLike)) and Path(inputs).is_dir():
        files = sorted(Path(inputs).iterdir())
        images = [str(f) for f in files if f.suffix.lower() in IMAGE_SUFFIXES]
    else:
        several = isinstance(inputs, (list, tuple))
        images = [
            os.fspath(i) if isinstance(i, os.PathLike) else i
            for i in (inputs if several else [inputs])
        ]
    if not images:
        raise ValueError(
            f'there are no images in {inputs!r}; allowed are image files '
            f'({", ".join(IMAGE_SUFFIXES)}), arrays, lists of them, and folders'
        )
    for image in images:
        if isinstance(image, str) and not Path(image).is_file():
            raise ValueError(f'image {image} does not exist')
    return images
