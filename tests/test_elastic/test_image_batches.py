import os
import shutil
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


def draw(folder, *args, train_dataloader=None, seed=0, **kwargs):
    dataset = dict(type='BaseSegDataset', pipeline=PIPELINE)
    cfg = Config(dict(default_scope='mmseg', test_dataloader=dict(dataset=dataset)))
    cfg.train_dataloader = train_dataloader
    model = SimpleNamespace(
        parameters=lambda: iter([torch.zeros(1)]),
        data_preprocessor=lambda batch, training: dict(
            inputs=torch.stack(batch['inputs'])
        ),
    )
    return ImageBatches(cfg, model, folder, seed).draw(*args, **kwargs)


def numbers(batches):
    return [batch[:, 0, 0, 0].tolist() for batch in batches]


def test_image_batches_of_equal_sizes_by_eight(folder):
    batches = draw(folder, 100)
    assert len(batches) == 13
    wanted = [[*range(8)], [8, 9], [10, 11, 12]]
    assert numbers(batches) == numbers(batches) == wanted


def test_image_batches_are_windows_of_sliding_models(folder):
    batches = draw(folder, 100)
    batches.model.test_cfg = dict(mode='slide', crop_size=(8, 10), stride=(4, 5))
    assert [batch.shape[2:] for batch in batches] == [(8, 8), (8, 8), (8, 10)]
    batches.model.test_cfg['crop_size'] = 3, 3
    first, again = ([*batches] for _ in range(2))
    assert {batch.shape[2:] for batch in first} == {(3, 3)}
    assert all(map(torch.equal, first, again))
    batches.model.test_cfg['mode'] = 'whole'
    assert [batch.shape[2:] for batch in batches] == [(8, 8), (8, 8), (8, 12)]


def test_image_batches_seed_draws_some_once(folder):
    some = sum(numbers(draw(folder, 5)), [])
    assert len({*some}) == 5
    assert some == sorted(some) == sum(numbers(draw(folder, 5)), [])
    assert some != sum(numbers(draw(folder, 5, seed=1)), [])


def test_image_batches_draws_are_disjoint_if_half_remain(folder):
    for taken, remain in ((3, 5), (8, 5), (11, 2)):
        first = sum(numbers(draw(folder, taken)), [])
        second = sum(numbers(draw(folder, 5, skip=taken)), [])
        assert len({*second} - {*first}) == len(second) == remain
    assert numbers(draw(folder, 5, skip=12)) == numbers(draw(folder, 5))


def test_image_batches_unreadable_image_is_named(folder):
    (folder / 'a' / '03.png').write_bytes(b'no image')
    with pytest.raises(ValueError, match=r'03\.png.*argument: images'):
        numbers(draw(folder, 100))


def test_image_batches_digest_is_of_files(folder, tmp_path_factory):
    """Equal for a copy, other for other names or contents."""
    other = tmp_path_factory.mktemp('copy') / 'moved'
    shutil.copytree(folder, other)
    known = draw(folder, 5).digest
    assert draw(other, 5).digest == known
    assert draw(other, 5, seed=1).digest != known
    path = other / 'a' / '03.png'
    path.rename(other / 'a' / '99.png')
    assert draw(other, 5).digest != known
    (other / 'a' / '99.png').rename(path)
    assert draw(other, 5).digest == known
    path.write_bytes(path.read_bytes())
    assert draw(other, 5).digest != known


def test_image_batches_digest_of_training_set_is_of_drawn_files(folder):
    data = dict(type='UnlabelledImages', folder=str(folder), pipeline=[])
    loader = dict(dataset=data)
    batches = draw(None, 5, train_dataloader=loader)
    drawn = sum(numbers(batches), [])
    for i in range(13):
        known, path = batches.digest, folder / 'ab'[i // 7] / f'{i:02}.png'
        os.utime(path, (i, i))
        assert (batches.digest != known) == (i in drawn)


def test_image_batches_all_parts_of_training_set(folder):
    parts = [
        dict(type='UnlabelledImages', folder=str(folder / part), pipeline=[])
        for part in 'ab'
    ]
    data = dict(type='RepeatDataset', times=2)
    data['dataset'] = dict(type='ConcatDataset', datasets=parts)
    found = sum(numbers(draw(None, 100, train_dataloader=dict(dataset=data))), [])
    assert found == [*range(13)]
