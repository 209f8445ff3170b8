import cv2
import numpy as np
import pytest
import torch
from mmengine.structures import BaseDataElement, InstanceData

from snnet_mm.evaluation.pictures.prediction_drawer import (
    PredictionDrawer,
    draw_sample,
)
from snnet_mm.utils.configs import drawable


class Recorder:
    """Visualizer of mm that keeps what it is asked to draw."""

    def __init__(self):
        self.drawn = []

    def add_datasample(self, name, image, **settings):
        self.drawn.append((name, image, settings))


IMAGE = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)


def draw(visualizer, image, sample, out_dir):
    # As pipelines load it: BGR, channels first.
    inputs = torch.from_numpy(image[..., ::-1].transpose(2, 0, 1).copy())
    drawer = PredictionDrawer(visualizer, out_dir)
    drawer(3, dict(inputs=[inputs]), [sample])
    (drawn,) = visualizer.drawn
    return drawn


@pytest.mark.parametrize('in_file', [True, False])
def test_images_are_those_of_their_files_or_as_loaded(tmp_path, in_file):
    path = tmp_path / 'a.png'
    if in_file:
        cv2.imwrite(str(path), IMAGE[..., ::-1])
    sample = BaseDataElement(metainfo=dict(img_path=str(path), ori_shape=(4, 6)))
    loaded = IMAGE[:2, :3]
    name, found, settings = draw(Recorder(), loaded, sample, tmp_path)
    assert name == 'a.png, stitch 3'
    # What is loaded is enlarged to its annotations.
    expected = IMAGE if in_file else cv2.resize(loaded, (6, 4))
    np.testing.assert_array_equal(found, expected)
    assert settings.pop('data_sample') is sample
    assert settings == dict(out_file=str(tmp_path / 'stitch_3' / 'a.png'))


def test_images_of_equal_names_are_kept_apart(tmp_path):
    visualizer = Recorder()
    drawer = PredictionDrawer(visualizer, tmp_path, str(tmp_path / 'data'))
    inputs = [torch.zeros(3, 4, 6, dtype=torch.uint8)] * 2
    paths = [tmp_path / 'data' / name / '0001.png' for name in ('a/video', 'b/video')]
    samples = [BaseDataElement(metainfo=dict(img_path=str(path))) for path in paths]
    drawer(3, dict(inputs=inputs), samples)
    files = [settings['out_file'] for *_, settings in visualizer.drawn]
    pictures = tmp_path / 'stitch_3'
    assert files == [str(pictures / x / 'video/0001.png') for x in ('a', 'b')]


def test_images_loaded_as_rgb_keep_their_channels(tmp_path):
    visualizer = Recorder()
    drawer = PredictionDrawer(visualizer, tmp_path, rgb=True)
    inputs = [torch.from_numpy(IMAGE.transpose(2, 0, 1).copy())]
    drawer(3, dict(inputs=inputs), [BaseDataElement(metainfo=dict(sample_idx=7))])
    ((_, image, settings),) = visualizer.drawn
    np.testing.assert_array_equal(image, IMAGE)
    assert settings['out_file'] == str(tmp_path / 'stitch_3/7.png')


@pytest.mark.ops
def test_boxes_have_the_colours_of_a_palette_in_lists():
    mmdet = pytest.importorskip('mmdet.visualization')
    visualizer = mmdet.DetLocalVisualizer()
    meta = dict(classes=('car', 'sky'), palette=[[0, 9, 0], [200, 0, 50]])
    visualizer.dataset_meta = meta | drawable(meta)
    found = dict(bboxes=[[10.0, 40, 50, 60]], scores=[0.9], labels=[1])
    found = InstanceData(**{k: torch.tensor(v) for k, v in found.items()})
    image = np.full((80, 80, 3), 255, np.uint8)
    sample = BaseDataElement(pred_instances=found)
    draw_sample(visualizer, 'a', image, sample, draw_gt=False)
    drawn = visualizer.get_image().astype(int)
    nearest = np.abs(drawn - (200, 0, 50)).sum(-1).min(1)
    assert nearest[60] < 120  # the lower edge, of which some is the background's
    assert nearest[70] > 300
