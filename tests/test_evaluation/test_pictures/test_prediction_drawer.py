import cv2
import numpy as np
import pytest
import torch
from mmengine.structures import BaseDataElement, InstanceData

from snnet_mm.evaluation.pictures.prediction_drawer import PredictionDrawer
from snnet_mm.tasks import task_of
from snnet_mm.utils.configs import drawable

IMAGE = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)


class Recorder:
    """Visualizer of mm that keeps what it is asked to draw."""

    def __init__(self):
        self.drawn = []

    def add_datasample(self, name, image, data_sample, out_file):
        self.drawn.append((name, image, out_file))


@pytest.fixture
def draw(tmp_path):
    """Draw an image that a pipeline has loaded for a sample with a path."""

    def draw(image, path, **kwargs):
        visualizer = Recorder()
        drawer = PredictionDrawer(visualizer, tmp_path / 'show', **kwargs)
        inputs = torch.from_numpy(image.transpose(2, 0, 1).copy())
        meta = dict(img_path=path) if path else dict(sample_idx=7)
        sample = BaseDataElement(metainfo=dict(meta, ori_shape=(4, 6)))
        drawer(3, dict(inputs=[inputs]), [sample])
        ((name, found, file),) = visualizer.drawn
        return name, found, file.removeprefix(f'{tmp_path}/show/')

    return draw


def test_prediction_drawer_images_of_files_or_loaded(draw, tmp_path):
    path = tmp_path / 'images' / 'val' / 'a.jpg'
    loaded = IMAGE[:2, :3]
    name, found, file = draw(loaded[..., ::-1], str(path))
    assert (name, file) == ('a.jpg, stitch 3', 'stitch_3/images/val/a.png')
    # What is loaded is enlarged to its annotations.
    np.testing.assert_array_equal(found, cv2.resize(loaded, (6, 4)))
    path.parent.mkdir(parents=True)
    path.write_bytes(cv2.imencode('.png', IMAGE[..., ::-1])[1].tobytes())
    np.testing.assert_array_equal(draw(loaded[..., ::-1], str(path))[1], IMAGE)
    _, found, file = draw(IMAGE, None, rgb=True)
    np.testing.assert_array_equal(found, IMAGE)
    assert file == 'stitch_3/7.png'
    assert draw(IMAGE, '../a.jpg')[2] == 'stitch_3/a.png'


@pytest.mark.ops
def test_drawable_palette_in_lists_colours_boxes():
    mmdet = pytest.importorskip('mmdet.visualization')
    visualizer = mmdet.DetLocalVisualizer()
    meta = dict(classes=('car', 'sky'), palette=[[0, 9, 0], [200, 0, 50]])
    visualizer.dataset_meta = meta | drawable(meta)
    found = dict(bboxes=[[10.0, 40, 50, 60]], scores=[0.9], labels=[1])
    found = InstanceData(**{k: torch.tensor(v) for k, v in found.items()})
    image = np.full((80, 80, 3), 255, np.uint8)
    sample = BaseDataElement(pred_instances=found)
    task_of(visualizer).draw(visualizer, 'a', image, sample, draw_gt=False)
    drawn = visualizer.get_image().astype(int)
    nearest = np.abs(drawn - (200, 0, 50)).sum(-1).min(1)
    assert nearest[60] < 120  # the lower edge, of which some is the background's
    assert nearest[70] > 300
