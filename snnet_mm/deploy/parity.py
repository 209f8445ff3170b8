"""Comparison of an exported stitch with the same stitch inside its model."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from mmengine.config import Config
from mmengine.logging import print_log
from mmengine.registry import DATASETS
from mmengine.structures import BaseDataElement
from torch import Tensor, nn

from snnet_mm.datasets import check_data_folders
from snnet_mm.utils import check, isolated_rng

from .graph import Predictions, as_tuple, predict

# Largest difference, relative to the largest prediction where that exceeds 1.
TOLERANCES = {'mm': 1e-5, 'safetensors': 1e-5, 'onnx': 1e-4, 'torch-export': 1e-4}


def sample_images(
    cfg: Config, number: int, size: tuple[int, int]
) -> tuple[Tensor, str]:
    """Load the first images of the test set by its pipeline, else draw noise.

    Returns:
        Images ``(number, 3, *size)`` with values from 0 to 255, and their name:
        ``'test images'``, or ``'noise'`` if the data is not there.
    """
    dataset = (cfg.get('test_dataloader') or {}).get('dataset')
    try:
        check(dataset, 'test_dataloader', None, 'one whose images are compared on')
        check_data_folders(cfg.test_dataloader, 'test_dataloader')
    except ValueError as error:
        print_log(f'The export is checked on noise, for {error}', logger='current')
        generator = torch.Generator().manual_seed(0)
        return 255 * torch.rand(number, 3, *size, generator=generator), 'noise'
    dataset = DATASETS.build(dataset)
    images = [dataset[i % len(dataset)]['inputs'] for i in range(number)]
    resized = [F.interpolate(image[None].float(), size) for image in images]
    return torch.cat(resized), 'test images'


@torch.no_grad()
def predict_loaded(model: nn.Module, images: Tensor) -> Predictions:
    """Predict images ``(B, 3, H, W)`` as mm loads them."""
    model.eval()
    # Preprocessors that pad note it in the samples.
    samples = [BaseDataElement() for _ in images]
    data = dict(inputs=list(images), data_samples=samples)
    data = model.data_preprocessor(data, False)
    with isolated_rng(0):  # some heads draw, as mmseg's LightHamHead its bases
        return predict(model, data['inputs'], len(images))


def check_parity(
    kind: str, stitch_id: int, got: Predictions, wanted: Predictions
) -> float:
    """Return the largest difference of predictions; more than rounding is an error."""
    differences = []
    for a, b in zip(as_tuple(got), as_tuple(wanted), strict=True):
        differences.append((a - b).abs().max().item())
        bound = TOLERANCES[kind] * max(1.0, b.abs().max().item())
        # Written this way round, NaN is refused too.
        if not differences[-1] <= bound:
            raise RuntimeError(
                f'the {kind} export of stitch {stitch_id} differs from the stitched '
                f'model by {differences[-1]:.2g}, allowed is {bound:.2g}: please '
                'report it'
            )
    return max(differences)
