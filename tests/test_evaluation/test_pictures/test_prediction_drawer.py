import cv2
import numpy as np
import pytest
import torch
from mmengine.structures import BaseDataElement

from snnet_mm.evaluation.pictures.prediction_drawer import PredictionDrawer


class Recorder:
    """Visualizer of mm that keeps what it is asked to draw."""

    def __init__(self):
        self.drawn = []

    def add_datasample(self, name, image, **settings):
        self.drawn.append((name, image, settings))


class Classified(Recorder):
    """As mmpretrain's, which has a method for every task."""

    def visualize_cls(self, image, sample, name, resize, **settings):
        self.drawn.append((name, image, resize, settings['out_file']))


@pytest.fixture
def image():
    return np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)


def batch(image):
    """As pipelines load it: BGR, channels first."""
    inputs = torch.from_numpy(image[..., ::-1].transpose(2, 0, 1).copy())
    return dict(inputs=[inputs])


def test_images_are_read_from_their_files(image, tmp_path):
    path = tmp_path / 'a.png'
    cv2.imwrite(str(path), image[..., ::-1])
    visualizer = Recorder()
    draw = PredictionDrawer(visualizer, show=True, wait_time=2)
    sample = BaseDataElement(metainfo=dict(img_path=str(path), ori_shape=(4, 6)))
    draw(3, batch(image[:2, :3]), [sample])
    ((name, found, settings),) = visualizer.drawn
    assert name == 'a.png, stitch 3'
    np.testing.assert_array_equal(found, image)
    assert settings.pop('data_sample') is sample
    assert settings == dict(show=True, wait_time=2, out_file=None)


def test_images_without_a_file_are_drawn_as_loaded(image, tmp_path):
    """CIFAR of mmpretrain has neither paths nor sizes, only numbers."""
    visualizer = Classified()
    draw = PredictionDrawer(visualizer, str(tmp_path / 'show'))
    sample = BaseDataElement(metainfo=dict(sample_idx=7), pred_label=torch.tensor([1]))
    draw(3, batch(image), [sample])
    ((name, found, resize, out_file),) = visualizer.drawn
    assert name == '7, stitch 3'
    np.testing.assert_array_equal(found, image)
    assert resize == 256
    assert out_file == str(tmp_path / 'show' / 'stitch_3' / '7.png')
    assert (tmp_path / 'show' / 'stitch_3').is_dir()


def test_smaller_inputs_are_enlarged_to_their_annotations(image):
    visualizer = Recorder()
    sample = BaseDataElement(metainfo=dict(img_path='000000', ori_shape=(8, 12)))
    PredictionDrawer(visualizer)(0, batch(image), [sample])
    ((_, found, _),) = visualizer.drawn
    assert found.shape == (8, 12, 3)
