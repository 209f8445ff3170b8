"""Evaluation, export and inference of mmpretrain's classifiers."""

from collections import defaultdict
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.evaluator import BaseMetric
from mmengine.registry import METRICS, MODELS, init_default_scope
from mmengine.runner import Runner
from torch.testing import assert_close

from snnet_mm.inference.init_inferencer import init_inferencer
from snnet_mm.inference.init_model import init_model
from snnet_mm.models import set_stitch

pytest.importorskip('mmpretrain')

TINY = Path(__file__).parents[3] / 'configs/imagenet/tiny'
CLASSES = ('ant', 'bee', 'cow')
NUM_IMAGES = 12


@METRICS.register_module()
class FirstScore(BaseMetric):
    """Mean score of the first class, in which stitches differ that agree on a class."""

    def process(self, data_batch, data_samples):
        self.results += [sample['pred_score'][0].item() for sample in data_samples]

    def compute_metrics(self, results):
        return dict(first_score=float(np.mean(results)))


@pytest.fixture
def images(tmp_path):
    """Four images of three classes each, in folders."""
    rng = np.random.default_rng(0)
    for folder in (tmp_path / 'images/val' / c for c in CLASSES):
        folder.mkdir(parents=True)
        for i in range(NUM_IMAGES // 3):
            # Coarse blocks of colour: noise would look alike to the network.
            pixels = rng.integers(0, 255, (2, 2, 3), dtype=np.uint8)
            cv2.imwrite(str(folder / f'{i}.png'), pixels.repeat(32, 0).repeat(32, 1))
    return tmp_path / 'images'


@pytest.fixture(params=['snnetv2-ti-b'])
def cfg(request, images, tmp_path):
    cfg = Config.fromfile(TINY / f'{request.param}_1xb64-600_tinyimagenet20-64x64.py')
    cfg.work_dir, cfg.log_level = str(tmp_path), 'ERROR'
    anchors, heads = cfg.model.backbone.anchors, cfg.model.head.anchor_heads
    for anchor, head, width in zip(anchors, heads, (8, 12, 16), strict=False):
        anchor.arch = dict(embed_dims=width, depth=3, num_heads=2)
        head.in_channels = width
        del anchor['init_cfg'], head['init_cfg']
    if cfg.model.backbone.type == 'SNNetv2':
        cfg.model.backbone.stitching_layer.rank = 2
    cfg.model.head.num_classes = 3
    cfg.test_dataloader.dataset.data_root = str(images)
    cfg.test_dataloader.batch_size = 4
    accuracy = dict(type='Accuracy', topk=(1, 2))
    cfg.test_evaluator = [accuracy, dict(type='FirstScore')]
    return cfg


@pytest.fixture
def model(cfg, randomise):
    init_default_scope(cfg.default_scope)
    return randomise(MODELS.build(cfg.model)).eval()


def runner_of(cfg, model, **test_cfg):
    cfg.test_cfg = dict(type='StitchTestLoop', stitches='all') | test_cfg
    runner = Runner.from_cfg(cfg)
    runner.model.load_state_dict(model.state_dict())
    return runner


@pytest.mark.parametrize('cfg', ['snnetv2-ti-b', 'snnetv1-ti-s-b'], indirect=True)
def test_all_stitches_in_one_pass_equal_one_at_a_time(cfg, model):
    together = runner_of(cfg, model).test()
    cfg.test_cfg = dict(type='TestLoop')
    alone = Runner.from_cfg(cfg)
    alone.model.load_state_dict(model.state_dict())
    space, different = alone.model.backbone.space, set()
    for stitch_id in space.ids:
        set_stitch(alone.model, stitch_id)
        metrics = alone.test()
        in_one_pass = {k: together[f'stitch_{stitch_id}/{k}'] for k in metrics}
        assert in_one_pass == pytest.approx(metrics), stitch_id
        different.add(metrics['first_score'])
    assert len(different) == len(space)


def test_predictions_kept_for_later_stay_those_of_their_stitch(cfg, model):
    # mmpretrain writes predictions into the samples of the batch.
    runner = runner_of(cfg, model)
    runner._test_loop = loop = runner.build_test_loop(runner._test_loop)
    kept = defaultdict(list)
    loop.draw = lambda stitch_id, batch, outputs: kept[stitch_id].extend(outputs)
    runner.test()
    images = [loop.dataloader.dataset[i]['inputs'] for i in range(NUM_IMAGES)]
    inputs = model.data_preprocessor(dict(inputs=images))['inputs']
    assert sorted(kept) == list(model.backbone.space.ids)
    for stitch_id, samples in kept.items():
        set_stitch(model, stitch_id)
        with torch.no_grad():
            expected = model(inputs).softmax(1)
        assert_close(torch.stack([s.pred_score for s in samples]), expected)
    assert len({s[0].pred_score[0].item() for s in kept.values()}) == len(kept)


def test_inferring_files_arrays_and_folders(cfg, model, images, tmp_path):
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'w')
    cfg.test_dataloader.dataset.metainfo = dict(classes=CLASSES)
    inferencer = init_inferencer(init_model(cfg, tmp_path / 'w', device='cpu'))
    files = sorted((images / 'val/cow').glob('*.png'))
    arrays = [cv2.imread(str(f)) for f in files]
    pixels = [torch.from_numpy(array).permute(2, 0, 1) for array in arrays]
    normalised = model.data_preprocessor(dict(inputs=pixels))['inputs']
    for stitch_id in (1, 0, 7):
        set_stitch(model, stitch_id)
        set_stitch(inferencer.model, stitch_id)
        with torch.no_grad():
            wanted = model(normalised).softmax(1)
        names = [CLASSES[i] for i in wanted.argmax(1)]
        for inputs in (images / 'val/cow', [str(f) for f in files], arrays):
            found = inferencer(inputs, batch_size=3)
            got = torch.from_numpy(np.stack([f['pred_scores'] for f in found]))
            assert_close(got, wanted, rtol=1e-4, atol=1e-5)
            assert [f['pred_class'] for f in found] == names
