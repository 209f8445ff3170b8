"""Images that chains are chosen and fitted on."""

from types import SimpleNamespace

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config

from snnet_mm.elastic import ImageBatches

pytest.importorskip('mmseg.models')
PIPELINE = [dict(type='LoadImageFromFile'), dict(type='PackSegInputs')]
SIZES = [(8, 8)] * 10 + [(8, 12)] * 3


@pytest.fixture
def folder(tmp_path):
    """Images whose first pixel is their number, of two sizes."""
    for i, size in enumerate(SIZES):
        path = tmp_path / 'ab'[i // 7] / f'{i:02}.png'
        path.parent.mkdir(exist_ok=True)
        cv2.imwrite(str(path), np.full((*size, 3), i, np.uint8))
    return tmp_path


def draw(folder, *args, **kwargs):
    dataset = dict(type='BaseSegDataset', pipeline=PIPELINE)
    cfg = Config(dict(default_scope='mmseg', test_dataloader=dict(dataset=dataset)))
    model = SimpleNamespace(
        parameters=lambda: iter([torch.zeros(1)]),
        data_preprocessor=lambda batch, training: dict(
            inputs=torch.stack(batch['inputs'])
        ),
    )
    return ImageBatches(cfg, model, *args, folder, **kwargs)


def numbers(batches):
    return [batch[:, 0, 0, 0].tolist() for batch in batches]


def test_neighbours_of_equal_size_share_batches_of_eight_in_every_iteration(folder):
    batches = draw(folder, 100)
    assert len(batches) == 13
    wanted = [[*range(8)], [8, 9], [10, 11, 12]]
    assert numbers(batches) == numbers(batches) == wanted


def test_a_seed_draws_some_once(folder):
    some = sum(numbers(draw(folder, 5)), [])
    assert len({*some}) == 5
    assert some == sorted(some) == sum(numbers(draw(folder, 5)), [])
    assert some != sum(numbers(draw(folder, 5, seed=1)), [])
