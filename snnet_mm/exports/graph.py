"""A model as a graph: images as they are loaded go in, predictions come out."""

import sys
from collections.abc import Mapping, Sized
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import DATASETS
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from snnet_mm.datasets import check_data_folders
from snnet_mm.models import SingleStitch
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import Predictions
from snnet_mm.utils import check, isolated_rng
from snnet_mm.utils.configs import innermost, model_config

INPUT, OUTPUT = 'images', 'predictions'
SIZE = 224, 224  # of noise
# Largest difference of files, relative to the largest prediction if that exceeds 1.
TOLERANCES = dict(mm=1e-5, safetensors=1e-5, onnx=1e-4, openvino=1e-3)
TOLERANCES['torch-export'] = 1e-4


class PredictionGraph(nn.Module):
    """Normalisation, a copy of an exported model, and what prediction does next."""

    def __init__(
        self, model: nn.Module, size: tuple[int, int], preprocessor: Mapping
    ) -> None:
        super().__init__()
        self.task, self.model = task_of(model), deepcopy(model)
        self.model.eval()
        for module in self.model.modules():
            if isinstance(module, SingleStitch):
                module.fix_input_size(size)
        if self.task.name == 'detection':
            for name in [n for n, _ in self.model.named_children()]:
                if name not in ('backbone', 'neck'):
                    delattr(self.model, name)
        for module in self.model.modules():
            # Checkpointing has nothing to save here, and cannot be traced.
            if getattr(module, 'with_cp', False):
                module.with_cp = False
        for name, default in (('mean', 0.0), ('std', 1.0)):
            values = preprocessor.get(name) or [default] * 3
            self.register_buffer(name, torch.tensor(values).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Predictions:
        return self.task.predict(self.model, (images - self.mean) / self.std, 1)


@torch.no_grad()
def predict_loaded(model: nn.Module, images: Tensor) -> Predictions:
    """Predict images ``(B, 3, H, W)`` as mm loads them."""
    model.eval()
    # Preprocessors that pad note it in the samples.
    samples = [BaseDataElement() for _ in images]
    data = dict(inputs=list(images), data_samples=samples)
    data = model.data_preprocessor(data, False)
    with isolated_rng(0):  # some heads draw, as mmseg's LightHamHead its bases
        return task_of(model).predict(model, data['inputs'], len(images))


def as_tuple(predictions: Predictions) -> tuple[Tensor, ...]:
    """Return predictions as a tuple."""
    return (predictions,) if isinstance(predictions, Tensor) else tuple(predictions)


def output_names(number: int) -> list[str]:
    """Return the names of a graph's outputs."""
    return [OUTPUT] if number == 1 else [f'level_{i}' for i in range(number)]


def trace(graph: PredictionGraph, images: Tensor) -> torch.export.ExportedProgram:
    """Trace a graph on two images or more, for any number of images of their size."""
    # Without a bound torch 2.6 says that 2 ** 63 - 1 images are not allowed.
    batch = torch.export.Dim('batch', max=2**31 - 1)
    # With gradients enabled, a relative position bias stays a table and its lookup;
    # kept for one size, it would be stored once per block, many times as large. The
    # first run makes the index of the lookup, which tracing takes as it is. No weight
    # may need a gradient: attention is then decomposed into another layout.
    graph.requires_grad_(False)
    with torch.enable_grad():
        graph(images)
        program = torch.export.export(
            graph, (images,), dynamic_shapes={INPUT: {0: batch}}, strict=False
        )
    # A file that is given away names no lines of code and holds no images.
    for node in program.graph.nodes:
        node.meta.pop('stack_trace', None)
    program.example_inputs = ((images.new_zeros(()).expand(images.shape),), {})
    return program


@dataclass
class StitchBuild:
    """A stitch as a model of its own, traced when a format asks for it.

    ``images`` are as graphs take them.
    """

    cfg: Config
    model: nn.Module
    images: Tensor

    @cached_property
    def program(self) -> torch.export.ExportedProgram:
        """The traced graph."""
        preprocessor = model_config(self.cfg).get('data_preprocessor') or {}
        graph = PredictionGraph(self.model, self.images.shape[2:], preprocessor)
        return trace(graph, self.images)

    def calibration_images(self, number: int = 30) -> Tensor:
        """Load training images through the test pipeline, as graphs take them."""
        settings, key = self.cfg.get('train_dataloader'), 'train_dataloader'
        check(settings, key, None, 'images to calibrate --precision int8 with')
        check_data_folders(settings, key)
        dataset = deepcopy(settings.dataset)
        tested = innermost(self.cfg.test_dataloader.dataset)
        innermost(dataset).pipeline = deepcopy(tested.pipeline)
        size = tuple(self.images.shape[2:])
        with isolated_rng(0):
            images = load_images(DATASETS.build(dataset), number, size)
        return images.flip(1) if takes_rgb(self.cfg) else images


def takes_rgb(cfg: Config) -> bool:
    """Tell whether a model turns the BGR of loaded images into RGB."""
    preprocessor = model_config(cfg).get('data_preprocessor') or {}
    keys = 'bgr_to_rgb', 'rgb_to_bgr', 'to_rgb'  # both exchange the channels
    return any(preprocessor.get(key) for key in keys)


def load_images(dataset: Sized, number: int, size: tuple[int, int]) -> Tensor:
    """Load images ``(number, 3, *size)``, evenly spread over a data set."""
    total = len(dataset)
    images = [dataset[i * total // number]['inputs'] for i in range(number)]
    return torch.cat([F.interpolate(image[None].float(), size) for image in images])


def sample_images(
    cfg: Config, number: int, size: tuple[int, int]
) -> tuple[Tensor, str]:
    """Load images ``(number, 3, *size)`` of the test set, or draw noise; name them."""
    try:
        dataset = _test_set(cfg)
    except ValueError as error:
        print_log(f'The export is checked on noise, for {error}', logger='current')
        generator = torch.Generator().manual_seed(0)
        return 255 * torch.rand(number, 3, *size, generator=generator), 'noise'
    return load_images(dataset, number, size), 'test images'


def size_of_test_images(cfg: Config, model: nn.Module) -> tuple[int, int]:
    """Return the size of a model's windows, else of its first test image.

    Where neither is known it is :data:`SIZE`, which all strides divide.
    """
    settings = getattr(model, 'test_cfg', None) or {}
    if settings.get('crop_size'):
        return tuple(settings['crop_size'])
    try:
        image = _test_set(cfg)[0]['inputs']
    except ValueError:
        return SIZE
    data = dict(inputs=[image], data_samples=[BaseDataElement()])
    return tuple(model.data_preprocessor(data, False)['inputs'].shape[-2:])


def _test_set(cfg: Config) -> Sized:
    dataset = (cfg.get('test_dataloader') or {}).get('dataset')
    check(dataset, 'test_dataloader', None, 'one whose images are compared on')
    check_data_folders(cfg.test_dataloader, 'test_dataloader')
    return DATASETS.build(dataset)


def check_parity(
    kind: str,
    what: str,
    got: Predictions,
    wanted: Predictions,
    precision: str = 'fp32',
) -> float:
    """Return the largest difference of predictions; more than rounding is an error.

    In other precisions than float32 it is one only where it is no number.
    """
    differences = []
    for a, b in zip(as_tuple(got), as_tuple(wanted), strict=True):
        differences.append((a - b).abs().max().item())
        bound = TOLERANCES.get(kind, 0) * max(1.0, b.abs().max().item())
        bound = bound if precision == 'fp32' else sys.float_info.max
        # Written this way round, NaN is refused too.
        if not differences[-1] <= bound:
            raise RuntimeError(
                f'the {kind} export of {what} differs from the stitched '
                f'model by {differences[-1]:.2g}, allowed is {bound:.2g}: please '
                'report it'
            )
    return max(differences)
