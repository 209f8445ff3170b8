from importlib import import_module
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from segmentor import segmentor_config, write_weights

import snnet_mm as sn
from snnet_mm.inferencers import (
    init_inferencer,
    list_images,
    predictions_of,
)
from snnet_mm.models import set_stitch
from snnet_mm.models.init_model import init_model

CONFIGS = Path(__file__).parents[1] / 'configs'


@pytest.fixture
def cfg():
    pytest.importorskip('mmseg')
    return segmentor_config()


@pytest.fixture(scope='module')
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp('weights') / 'seg.pth'
    return write_weights(segmentor_config(), path)


@pytest.fixture(scope='module')
def images(tmp_path_factory):
    """A folder with three images and two other files."""
    folder = tmp_path_factory.mktemp('images')
    random = np.random.default_rng(0)
    for name in 'abc':
        image = random.integers(0, 256, (40, 60, 3), np.uint8)
        cv2.imwrite(str(folder / f'{name}.png'), image)
    for name in ('notes.txt', '._a.png'):  # of macOS
        (folder / name).write_text('no image')
    return folder


@pytest.fixture
def model(cfg, checkpoint):
    return init_model(cfg, checkpoint, device='cpu')


def by_hand(model, path, stitch):
    """Classes of every pixel, without mm's pipeline and predict."""
    set_stitch(model, stitch)
    image = cv2.imread(str(path))
    small = cv2.resize(image, (48, 32))[..., ::-1].astype(np.float32)
    small = (small - [100, 110, 120]) / [50, 51, 52]
    x = torch.from_numpy(small).float().permute(2, 0, 1)[None]
    with torch.no_grad():
        logits = model.decode_head(model.backbone(x))
    for size in ((32, 48), image.shape[:2]):
        logits = torch.nn.functional.interpolate(logits, size, mode='bilinear')
    return logits.argmax(1)[0].numpy()


def test_init_inferencer_every_input_under_every_stitch(model, images):
    inferencer = init_inferencer(model)
    assert inferencer.model is model
    files = sorted(images.glob('[!.]*.png'))
    seen = []
    for stitch in (1, 0, 9):
        wanted = [by_hand(model, f, stitch) for f in files]
        for inputs in (images, str(images), files, [cv2.imread(str(f)) for f in files]):
            found = inferencer(inputs, batch_size=2)['predictions']
            assert len(found) == 3
            for a, b in zip(found, wanted, strict=True):
                # A tie of two classes is rounded one way or the other.
                assert (a == b).mean() > 0.999
        assert np.array_equal(inferencer(files[1])['predictions'], found[1])
        seen.append(wanted[0])
    assert (seen[0] != seen[1]).any()
    assert (seen[1] != seen[2]).any()


@pytest.mark.slow
def test_init_inferencer_several_packages_at_once(images):
    """Each model's parts are those of its own package, whichever was loaded last."""
    files = 'cls_snnetv2', 'setr-naive_snnetv2', 'mask-rcnn_snnetv2', 'dpt_snnetv2'
    files = [next((CONFIGS / 'toy').glob(f'{name}-fast-slow_*')) for name in files]
    image, wanted, models = images / 'a.png', [], []
    for file in files:
        cfg = Config.fromfile(file)
        if cfg.default_scope == 'mmdet':  # whose masks need a scale
            pipeline = cfg.test_dataloader.dataset.pipeline
            pipeline.insert(-1, dict(type='Resize', scale=(64, 64)))
        models.append(init_model(cfg, None, device='cpu'))
        found = init_inferencer(models[-1])(image, return_datasamples=True)
        wanted.extend(predictions_of(found))
    inferencers = [init_inferencer(model) for model in models]
    for inferencer, right in zip(inferencers, wanted, strict=True):
        (found,) = predictions_of(inferencer(image, return_datasamples=True))
        found, right = (getattr(x, 'scores', x) for x in (found, right))
        assert np.array_equal(found, right)


@pytest.fixture
def classifier():
    (config,) = (CONFIGS / 'imagenet/tiny').glob('snnetv1-resnet*')
    model = init_model(config, None, device='cpu')
    model.dataset_meta['classes'] = [f'class {i}' for i in range(20)]
    return model


def test_init_inferencer_shows_no_progress_bar(classifier, images, monkeypatch):
    progress, shown = import_module('mmpretrain.utils.progress'), []
    monkeypatch.setattr(progress.global_live, 'start', lambda: shown.append(True))
    init_inferencer(classifier)(images / 'a.png')
    assert not shown
    assert not progress.disable_progress_bar  # a global, of others too
    assert [*progress.track([3])] == [3]
    assert shown


def test_init_inferencer_visualizer_without_a_name(classifier, images):
    """Those of mmpretrain's own configs have none."""
    model = classifier
    model.cfg.visualizer = dict(type='UniversalVisualizer')
    (found,) = init_inferencer(model)(images / 'a.png')
    assert found['pred_class'] == f'class {found["pred_label"]}'


@pytest.mark.parametrize('kind', ['model', 'classifier'])
def test_predict_draws_on_arrays_in_their_colours(kind, request, tmp_path):
    """As on files; their channels are BGR."""
    model, image = request.getfixturevalue(kind), np.empty((96, 96, 3), np.uint8)
    image[:] = 10, 60, 200
    if kind == 'model':  # masks of white and names do not change what is largest
        model.dataset_meta['palette'] = [[255] * 3] * len(model.dataset_meta['classes'])
    cv2.imwrite(str(tmp_path / 'a.png'), image)
    sn.predict(model, [image, str(tmp_path / 'a.png')], out_dir=tmp_path / 'drawn')
    drawn = [cv2.imread(str(p)) for p in (tmp_path / 'drawn').rglob('*.*')]
    assert len(drawn) == 2
    for picture in drawn:
        blue, green, red = np.median(picture[-40:, -40:], axis=(0, 1))
        assert blue < green < red
    assert abs(drawn[0].astype(int) - drawn[1]).mean() < 3


def test_list_images_refuses_what_is_no_image(images, tmp_path):
    array = np.zeros((2, 2, 3), np.uint8)
    file, listed = list_images((images / 'b.png', array))
    assert file == str(images / 'b.png')
    assert np.shares_memory(listed, array)
    wrong = [images / 'a.png', 'nowhere.jpg'], tmp_path, [], None, [array, 3]
    arrays = array[..., 0], array[..., :2], array[:0], array.astype(np.float32)
    for inputs in (*wrong, *arrays):
        with pytest.raises(ValueError, match='inputs=.* is invalid'):
            list_images(inputs)
