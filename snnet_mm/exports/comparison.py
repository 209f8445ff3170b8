"""Images to compare exports on, and the check of their differences."""

import math
import sys
from collections.abc import Sequence
from copy import deepcopy

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import DATASETS
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from snnet_mm.datasets import check_data_folders
from snnet_mm.tasks import task_of
from snnet_mm.tasks.base import Predictions, as_tuple
from snnet_mm.utils import check, isolated_rng
from snnet_mm.utils.configs import innermost_parts

from .normalization import normalized, split_normalize

SIZE = 224, 224  # a multiple of all strides
RERANKED = 0.05  # largest share of objects that rounding may replace


@torch.no_grad()
def predict_loaded(cfg: Config, model: nn.Module, images: Tensor) -> Predictions:
    """Run a model on images ``(B, 3, H, W)`` as mm loads them."""
    model.eval()
    images = normalized(cfg, images)
    # Preprocessors record their padding in the samples.
    samples = [BaseDataElement() for _ in images]
    data = dict(inputs=list(images), data_samples=samples)
    data = model.data_preprocessor(data, False)
    with isolated_rng(0):  # some heads are random, such as the bases of LightHamHead
        return task_of(model).predict(model, data['inputs'], len(images))


def test_set_of(cfg: Config) -> Sequence | None:
    """Return the test set, without ``Normalize`` steps that graphs include.

    Without its data, log the reason and return None.
    """
    dataset = deepcopy((cfg.get('test_dataloader') or {}).get('dataset'))
    try:
        check(dataset, 'test_dataloader', None, 'images for the comparison')
        check_data_folders(cfg.test_dataloader, 'test_dataloader')
        for part in innermost_parts(dataset):
            part.pipeline = split_normalize(part.pipeline)[1]
        return DATASETS.build(dataset)
    except ValueError as error:
        print_log(f'The export is checked on noise, for {error}', logger='current')
        return None


def sample_images(dataset: Sequence | None, shape: tuple[int, int, int, int]) -> Tensor:
    """Return images ``(B, C, H, W)``, evenly spread over a data set, or noise."""
    if dataset is None:
        return 255 * torch.rand(shape, generator=torch.Generator().manual_seed(0))
    number, _, *size = shape
    images = [dataset[i * len(dataset) // number]['inputs'] for i in range(number)]
    return torch.cat([F.interpolate(image[None].float(), size) for image in images])


def first_image_size(dataset: Sequence | None, model: nn.Module) -> tuple[int, int]:
    """Return the size of a model's first test image, or :data:`SIZE` without one."""
    if dataset is None:
        return SIZE
    data = dict(inputs=[dataset[0]['inputs']], data_samples=[BaseDataElement()])
    return tuple(model.data_preprocessor(data, False)['inputs'].shape[-2:])


def check_parity(
    what: str,
    got: Predictions,
    wanted: Predictions,
    tolerance: float,
    ranked: bool = False,
) -> float:
    """Return the largest difference of predictions; raise if it exceeds rounding.

    ``tolerance`` is relative to the largest prediction, if this exceeds 1. If it is
    infinite, only NaN and infinite differences raise. If ``ranked``, predictions are
    objects ``(B, n, ...)``: rounding may change their order, and :data:`RERANKED` of
    them, as detectors choose among almost equal scores.
    """
    differences = []
    if ranked:  # the nearest object of each
        images = torch.arange(len(wanted[0]))[:, None]
        rows = [
            torch.cat([x.reshape(*x.shape[:2], -1) for x in found], 2)
            for found in (got, wanted)
        ]
        nearest = torch.cdist(*rows, p=math.inf).argmin(2)
        wanted = tuple(x[images, nearest] for x in wanted)
    for a, b in zip(as_tuple(got), as_tuple(wanted), strict=True):
        apart = (a - b).abs()
        if ranked:
            apart = apart.reshape(*apart.shape[:2], -1).amax(2).flatten()
            number = len(apart) - int(RERANKED * len(apart))
            apart = apart.kthvalue(number).values
        differences.append(apart.max().item())
        bound = min(tolerance * max(1.0, b.abs().max().item()), sys.float_info.max)
        # This form of the comparison also rejects NaN.
        if not differences[-1] <= bound:
            raise RuntimeError(
                f'the export of {what} differs from the stitched model by '
                f'{differences[-1]:.2g}, more than {bound:.2g}: please report it'
            )
    return max(differences)
