"""Models of images with one, four or six channels: trained, tested, exported, drawn."""

import numpy as np
import pytest
import torch
from mmengine.registry import TRANSFORMS
from mmengine.runner import Runner
from PIL import Image
from tiny import tiny_config

import snnet_mm as sn
from snnet_mm.anchors import image_channels
from snnet_mm.costs import cost_table, measure_latency
from snnet_mm.inference.init_inferencer import draw_prediction, init_inferencer
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import find_stitched_backbone, set_stitch
from snnet_mm.runtime.image_io import read_image
from snnet_mm.training import StitchSamplingHook  # noqa: F401

pytestmark = pytest.mark.filterwarnings('ignore')
SIDE = 32
LOADERS = {
    1: dict(type='LoadImageFromFile', color_type='grayscale'),
    4: dict(type='LoadImageFromFile', color_type='unchanged'),
    6: dict(type='LoadArray'),
}


@TRANSFORMS.register_module()
class LoadArray:
    """A loader of arrays in files of numpy, as users write."""

    def __call__(self, results):
        image = np.load(results['img_path'])
        shape = image.shape[:2]
        return dict(results, img=image, img_shape=shape, ori_shape=shape)


def write_images(root, channels):
    """Write four images and masks; masks say where the last channel is high."""
    rng = np.random.default_rng(0)
    for folder in ('img', 'ann'):
        (root / folder).mkdir(parents=True)
    for i in range(4):
        image = rng.integers(0, 256, (SIDE, SIDE, channels), np.uint8)
        mask = Image.fromarray((image[..., -1] > 127).astype(np.uint8))
        mask.save(root / f'ann/{i}.png')
        if channels == 6:
            np.save(root / f'img/{i}.npy', image)
        else:
            Image.fromarray(image.squeeze()).save(root / f'img/{i}.png')


def config(root, channels):
    """The tiny toy segmentor on images of other channels."""
    cfg, loader = tiny_config(), LOADERS[channels]
    for anchor in cfg.model.backbone.anchors:
        anchor.in_channels = channels
    cfg.model.data_preprocessor.update(mean=[127.0], std=[64.0])
    dataset = dict(
        type='BaseSegDataset',
        data_root=str(root),
        data_prefix=dict(img_path='img', seg_map_path='ann'),
        img_suffix='.npy' if channels == 6 else '.png',
        metainfo=dict(classes=('low', 'high'), palette=[[0, 0, 0], [255, 0, 0]]),
        pipeline=[loader, dict(type='LoadAnnotations'), dict(type='PackSegInputs')],
    )
    seeded = dict(dataset, type='SeededDataset', of=dataset['type'])
    cfg.train_dataloader.dataset, cfg.test_dataloader.dataset = seeded, dataset
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    cfg.model.decode_head.num_classes = 2
    cfg.work_dir = str(root / 'work')
    return cfg


SLOW = [pytest.param(number, marks=pytest.mark.slow) for number in (1, 6)]


@pytest.fixture(scope='module', params=[4, *SLOW])
def trained(request, tmp_path_factory):
    """Channels, folder, config and model after a training."""
    channels, root = request.param, tmp_path_factory.mktemp('channels')
    write_images(root, channels)
    cfg = config(root, channels)
    Runner.from_cfg(cfg).train()
    model = init_model(cfg, root / 'work/iter_1.pth', device='cpu')
    return channels, root, cfg, model


def test_costs_grow_with_the_channels(trained):
    channels, _, cfg, model = trained
    assert image_channels(model) == channels
    three = tiny_config()
    three.model.decode_head.num_classes = 2
    usual = init_model(three, None, device='cpu')
    patch = usual.backbone.anchors[0].patch_size
    for i, width in ((0, 8), (1, 12)):
        more = (channels - 3) * width * SIDE * SIDE
        found = cost_table(model)[i], cost_table(usual)[i]
        assert found[0].flops - found[1].flops == more
        assert found[0].params - found[1].params == (channels - 3) * width * patch**2
    assert min(measure_latency(model, rounds=1, check=()).by_stitch.values()) > 0


def test_predictions_from_files_and_arrays(trained, tmp_path):
    """They equal the model's own on what the pipeline loads."""
    channels, root, cfg, model = trained
    (file,) = (root / 'img').glob('0.*')
    image = TRANSFORMS.build(LOADERS[channels])(dict(img_path=str(file)))['img']
    image = image.reshape(SIDE, SIDE, channels)
    inputs = [torch.from_numpy(image).permute(2, 0, 1)]
    for stitch in (0, 1):
        set_stitch(model, stitch)
        wanted = model.test_step(dict(inputs=inputs, data_samples=None))[0]
        wanted = wanted.pred_sem_seg.data[0].numpy()
        for given in (str(file), image):
            (found,) = sn.predict(model, given, out_dir=tmp_path / 'drawn')
            assert np.array_equal(found, wanted)
    assert len([*(tmp_path / 'drawn').rglob('*.*')]) > 0
    shown = str(file) if channels < 6 else image
    assert draw_prediction(init_inferencer(model), shown).shape == (SIDE, SIDE, 3)
    with pytest.raises(ValueError, match='of shape .8, 8, 3.. is invalid'):
        sn.predict(model, np.zeros((8, 8, 3), np.uint8))


def test_stitches_are_tested_and_drawn(trained, tmp_path):
    _, root, cfg, _ = trained
    cfg = cfg.copy()
    cfg.work_dir, cfg.load_from = str(tmp_path), str(root / 'work/iter_1.pth')
    pictures = str(tmp_path / 'pictures')
    cfg.test_cfg = dict(type='StitchTestLoop', stitches='0,1', show_dir=pictures)
    runner = Runner.from_cfg(cfg)
    runner.test()
    assert [row.id for row in runner.test_loop.table.rows] == [0, 1]
    assert len([*(tmp_path / 'pictures').rglob('*.png')]) == 8


@pytest.mark.slow
def test_exports_predict_alike(trained, tmp_path):
    pytest.importorskip('onnxruntime')
    channels, root, cfg, model = trained
    options = dict(precisions=('fp32', 'int8'), verify_on='test')
    manifest = sn.export(model, tmp_path, [0, 1], ('onnx',), **options)
    assert manifest['input']['shape'][1] == channels
    assert manifest['input']['channels'] == 'loaded'
    runtime = sn.Runtime(tmp_path, precision='fp32')
    (file,) = (root / 'img').glob('1.*')
    loaded = TRANSFORMS.build(LOADERS[channels])(dict(img_path=str(file)))['img']
    image = loaded.reshape(SIDE, SIDE, channels)
    for stitch in (0, 1):
        runtime.set_stitch(stitch)
        set_stitch(model, stitch)
        assert (runtime(image) == sn.predict(model, str(file))[0]).mean() > 0.99
    assert min(runtime.latencies().values()) > 0
    with pytest.raises(ValueError, match=rf'array \(H, W, {channels}\) of channels as'):
        runtime(np.zeros((SIDE, SIDE, 3), np.uint8))
    if channels < 6:
        assert np.array_equal(read_image(file, channels), image)


def test_anchors_of_different_images_are_refused(tmp_path):
    cfg = tiny_config()
    cfg.model.backbone.anchors[1].in_channels = 4
    words = r'in_channels=\(3, 4\) is invalid.*backbone.anchors.in_ch'
    with pytest.raises(ValueError, match=words):
        init_model(cfg, None)
    cfg.model.backbone.anchors[1].in_channels = 0
    with pytest.raises(ValueError, match='in_channels=0 is invalid'):
        init_model(cfg, None)
    assert find_stitched_backbone(init_model(tiny_config(), None)).space.ids
