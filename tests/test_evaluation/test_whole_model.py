import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config, ConfigDict
from mmengine.model import BaseModel
from mmengine.runner import Runner
from tiny import TOY

from snnet_mm.costs import whole_model_cost
from snnet_mm.evaluation import evaluate_whole_model
from snnet_mm.evaluation.image_scores import ImageScores
from snnet_mm.stitching import StitchTable
from snnet_mm.utils import digest

LOAD = [dict(type='LoadImageFromFile'), dict(type='LoadAnnotations')]


def test_a_model_without_stitches_is_a_baseline(tmp_path):
    alone = TOY.name.replace('snnetv2-fast-slow', 'vit-fast')
    cfg = Config.fromfile(TOY.with_name(alone))
    cfg.work_dir, cfg.log_level = str(tmp_path), 'ERROR'
    cfg.test_dataloader.dataset.num_scenes = 3
    # Windows are cut from larger images: costs are those of a stitched model's.
    cfg.model.data_preprocessor.size = (48, 32)
    runner = Runner.from_cfg(cfg)
    evaluate_whole_model(runner)
    results = StitchTable.read(tmp_path / 'results.json')
    (row,) = results.rows
    cost, _ = whole_model_cost(runner.model, (48, 32))
    assert results.input_size == (48, 32)
    assert (row.num_images, row.flops, row.params) == (3, cost.flops, cost.params)
    scores = ImageScores.read(tmp_path / 'per_image.npz', results)
    # mmsegmentation rounds to two places.
    assert abs(scores.scores(torch.ones(1, 3))[0, 0] - row.metrics['mIoU']) < 0.006


def test_costs_of_a_whole_model_by_hand():
    model = torch.nn.Conv2d(3, 8, 2, stride=2)
    cost, scope = whole_model_cost(model, (4, 6))
    assert (cost.flops, cost.params) == (2 * 3 * 8 * 3 * 4, 8 * 3 * 4 + 8)
    assert scope is None
    assert model.weight.device.type == 'cpu'


class WithTruth(BaseModel):
    """A model whose head needs data samples, as those of DETR and Mask2Former."""

    def __init__(self):
        super().__init__()
        self.backbone, self.head = (
            torch.nn.Conv2d(3, 8, 2, stride=2),
            torch.nn.Linear(8, 8),
        )

    def extract_feat(self, images):
        return self.backbone(images)

    def forward(self, images, data_samples=None, mode='tensor'):
        return self.head(self.extract_feat(images)[data_samples.labels])


def test_heads_that_need_more_than_images_are_left_out():
    cost, scope = whole_model_cost(WithTruth(), (4, 6))
    assert (cost.flops, cost.params) == (2 * 3 * 8 * 3 * 4, 8 * 3 * 4 + 8)
    assert scope == 'backbone and neck alone'


@pytest.fixture
def of_files(toy_cfg, tmp_path):
    """Images 0 to 3, which can be read, in files."""
    rng = np.random.default_rng(0)
    for i in range(4):
        for kind, most, shape in (('images', 256, (64, 64, 3)), ('maps', 6, (64, 64))):
            (tmp_path / kind).mkdir(exist_ok=True)
            pixels = rng.integers(0, most, shape, np.uint8)
            cv2.imwrite(str(tmp_path / kind / f'{i}.png'), pixels)
    toy_cfg.test_dataloader.dataset = ConfigDict(
        type='BaseSegDataset',
        test_mode=True,
        img_suffix='.png',
        data_prefix=dict(
            img_path=f'{tmp_path}/images', seg_map_path=f'{tmp_path}/maps'
        ),
        metainfo=dict(classes=tuple('abcdef')),
        pipeline=[*LOAD, dict(type='PackSegInputs')],
    )
    toy_cfg.test_cfg.stitches = [0, 4]
    return toy_cfg


def test_images_that_are_dropped_do_not_count(of_files, tmp_path):
    cfg = of_files
    cfg.test_dataloader.update(batch_size=3, drop_last=True)
    for loop, name in (
        ('StitchTestLoop', 'stitches.json'),
        ('TestLoop', 'results.json'),
    ):
        cfg.test_cfg = ConfigDict(type=loop)
        runner = Runner.from_cfg(cfg)
        if loop == 'TestLoop':
            evaluate_whole_model(runner)
        else:
            runner.test()
        (path,) = tmp_path.glob(f'*/{name}')
        table = StitchTable.read(path)
        assert table.shared('num_images') == 3
        images = ImageScores.read(path.with_name('per_image.npz'), table)
        assert images.numerators.shape[1] == 3
        assert images.names == digest(
            [f'{tmp_path.name}/images/{i}.png' for i in range(3)]
        )
