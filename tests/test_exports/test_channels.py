"""Models of images with one, four or six channels: counted, predicted, exported."""

import cv2
import numpy as np
import pytest
import torch
from mmengine.registry import TRANSFORMS
from PIL import Image
from small import small

import snnet_mm as sn
from snnet_mm.costs import cost_table
from snnet_mm.models import set_stitch
from snnet_mm.models.init_model import init_model

pytestmark = pytest.mark.filterwarnings('ignore')
SIDE = 32


@TRANSFORMS.register_module()
class LoadArray:
    """A loader of arrays in files of numpy, as users write."""

    def __call__(self, results):
        image = np.load(results['img_path'])
        shape = image.shape[:2]
        return dict(results, img=image, img_shape=shape, ori_shape=shape)


LOADERS = {
    1: dict(type='LoadImageFromFile', color_type='grayscale'),
    4: dict(type='LoadImageFromFile', color_type='unchanged'),
    6: dict(type='LoadArray'),
}
SLOW = [pytest.param(number, marks=pytest.mark.slow) for number in (1, 6)]


@pytest.fixture(params=[4, *SLOW])
def given(request, tmp_path):
    """Channels, an image as a file and as loaded, and the tiny toy segmentor."""
    channels = request.param
    image = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, channels), np.uint8)
    file = str(tmp_path / ('a.npy' if channels == 6 else 'a.png'))
    if channels == 6:
        np.save(file, image)
    else:
        Image.fromarray(image.squeeze()).save(file)
    cfg = small('tiny')
    for anchor in cfg.model.backbone.anchors:
        anchor.in_channels = channels
    cfg.model.data_preprocessor.update(mean=[127.0], std=[64.0])
    pipeline = [LOADERS[channels], dict(type='PackSegInputs')]
    about = dict(type='BaseSegDataset', data_prefix=dict(img_path=str(tmp_path)))
    cfg.test_dataloader.dataset = about | dict(pipeline=pipeline, img_suffix=file[-4:])
    model = init_model(cfg, None, device='cpu')
    names = [f'class {i}' for i in range(model.decode_head.num_classes)]
    model.dataset_meta = dict(classes=names, palette=[[0, 0, 0]] * len(names))
    loaded = TRANSFORMS.build(LOADERS[channels])(dict(img_path=file))['img']
    loaded = loaded.reshape(SIDE, SIDE, channels)
    return channels, file, loaded, model


def test_costs_grow_with_the_channels(given):
    channels, _, _, model = given
    usual = init_model(small('tiny'), None, device='cpu')
    for i, width in ((0, 8), (1, 12)):
        more, wanted = cost_table(model)[i], cost_table(usual)[i]
        weights = (channels - 3) * width * usual.backbone.anchors[0].patch_size ** 2
        assert more.flops - wanted.flops == (channels - 3) * width * SIDE * SIDE
        assert more.params - wanted.params == weights


def test_predictions_from_files_and_arrays(given, tmp_path):
    """They equal the model's own on what the pipeline loads."""
    channels, file, image, model = given
    inputs = [torch.from_numpy(image).permute(2, 0, 1)]
    wanted = model.test_step(dict(inputs=inputs, data_samples=None))[0]
    for array in (file, image):
        (found,) = sn.predict(model, array, out_dir=tmp_path / 'drawn')
        assert np.array_equal(found, wanted.pred_sem_seg.data[0].numpy())
    pictures = [cv2.imread(str(p)) for p in (tmp_path / 'drawn').rglob('*.*')]
    assert {picture.shape for picture in pictures} == {(SIDE, SIDE, 3)}
    with pytest.raises(ValueError, match='of shape .8, 8, 3. .* is invalid'):
        sn.predict(model, np.zeros((8, 8, 3), np.uint8))


@pytest.mark.slow
def test_exports_predict_alike(given, tmp_path):
    pytest.importorskip('onnxruntime')
    channels, file, image, model = given
    manifest = sn.export(
        model, tmp_path / 'bundle', [0, 1], precisions=('fp32', 'int8')
    )
    assert manifest['input']['shape'][1] == channels
    assert manifest['input']['channels'] == 'loaded'
    # The runtime does not know the loader of six channels.
    runtime = sn.Runtime(tmp_path / 'bundle', prepared=channels == 6)
    for stitch in (0, 1):
        runtime.set_stitch(stitch)
        set_stitch(model, stitch)
        assert (runtime(image) == sn.predict(model, file)[0]).mean() > 0.99


@pytest.mark.parametrize('channels', [0, 4])
def test_anchors_of_different_images_are_refused(channels):
    cfg = small('tiny')
    cfg.model.backbone.anchors[1].in_channels = channels
    with pytest.raises(ValueError, match=r'in_channels=.* is invalid'):
        init_model(cfg, None)
