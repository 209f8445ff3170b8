"""What the tools do with mmpretrain's classifiers."""

import copy
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

from snnet_mm.apis import draw_prediction, init_inferencer, init_model, set_stitch
from snnet_mm.deploy import FORMATS, StitchExporter, run_onnx, single_stitch
from snnet_mm.evaluation import cost_table
from snnet_mm.stitching import StitchResults

pytest.importorskip('mmpretrain')

TINY = Path(__file__).parents[3] / 'configs/imagenet/tiny'
CLASSES = ('ant', 'bee', 'cow')
NUM_IMAGES = 12
MEAN = torch.tensor([123.675, 116.28, 103.53]).view(3, 1, 1)
STD = torch.tensor([58.395, 57.12, 57.375]).view(3, 1, 1)


@METRICS.register_module()
class FirstScore(BaseMetric):
    """Mean score of the first class, in which stitches differ that agree on a class."""

    def process(self, data_batch, data_samples):
        self.results += [sample['pred_score'][0].item() for sample in data_samples]

    def compute_metrics(self, results):
        return dict(first_score=float(np.mean(results)))


@pytest.fixture
def images(tmp_path):
    """Four images of three classes each, in folders, for training and validation."""
    rng = np.random.default_rng(0)
    for folder in (
        tmp_path / 'images' / s / c for s in ('train', 'val') for c in CLASSES
    ):
        folder.mkdir(parents=True)
        for i in range(NUM_IMAGES // 3):
            # Coarse blocks of colour: noise would look alike to the network.
            pixels = rng.integers(0, 255, (2, 2, 3), dtype=np.uint8)
            cv2.imwrite(str(folder / f'{i}.png'), pixels.repeat(32, 0).repeat(32, 1))
    return tmp_path / 'images'


def config_of(name, images, work_dir):
    cfg = Config.fromfile(TINY / f'{name}_1xb64-600_tinyimagenet20-64x64.py')
    cfg.work_dir, cfg.log_level = str(work_dir), 'ERROR'
    anchors, heads = cfg.model.backbone.anchors, cfg.model.head.anchor_heads
    for anchor, head, width in zip(anchors, heads, (8, 12, 16), strict=False):
        anchor.arch = dict(embed_dims=width, depth=3, num_heads=2)
        head.in_channels = width
        del anchor['init_cfg'], head['init_cfg']
    if cfg.model.backbone.type == 'SNNetv2':
        cfg.model.backbone.stitching_layer = dict(type='LoRAStitchingLayer', rank=2)
    cfg.model.head.num_classes = 3
    cfg.default_hooks.stitch_init.num_images = 6
    cfg.default_hooks.stitch_sampling.sampler = dict(type='UniformSampler')
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        loader.dataset.data_root = str(images)
        loader.batch_size = 4
    accuracy = dict(type='Accuracy', topk=(1, 2))
    cfg.val_evaluator = cfg.test_evaluator = [accuracy, dict(type='FirstScore')]
    cfg.train_cfg.update(max_iters=2, val_interval=2)
    cfg.default_hooks.checkpoint.interval = 2
    cfg.param_scheduler = []
    return cfg


@pytest.fixture
def cfg(images, tmp_path):
    return config_of('snnetv2-ti-b', images, tmp_path)


def randomised(cfg, randomise):
    init_default_scope(cfg.default_scope)
    return randomise(MODELS.build(cfg.model)).eval()


def runner_of(cfg, model, **test_cfg):
    cfg = copy.deepcopy(cfg)
    cfg.test_cfg = dict(type='StitchTestLoop', stitches='all') | test_cfg
    runner = Runner.from_cfg(cfg)
    runner.model.load_state_dict(model.state_dict())
    return runner


@pytest.mark.parametrize('name', ['snnetv2-ti-b', 'snnetv1-ti-s-b'])
def test_all_stitches_in_one_pass_equal_one_at_a_time(
    name, images, randomise, tmp_path
):
    cfg = config_of(name, images, tmp_path)
    model = randomised(cfg, randomise)
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
    (report,) = tmp_path.glob('*/stitches.json')
    results = StitchResults.read(report, space)
    assert (results.metric, results.higher_is_better) == ('accuracy/top1', True)
    assert results.input_size == (64, 64)


def test_predictions_kept_for_later_stay_those_of_their_stitch(cfg, randomise):
    # mmpretrain writes predictions into the samples of the batch.
    model = randomised(cfg, randomise)
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


def test_training_fits_the_layers_and_trains_the_heads_of_its_stitches(cfg):
    runner = Runner.from_cfg(cfg)
    before = copy.deepcopy(runner.model.state_dict())
    runner.train()
    after, hub = runner.model.state_dict(), runner.message_hub
    space, sampled = runner.model.backbone.space, hub.runtime_info['stitch_histogram']
    trained = {k for k, v in after.items() if not v.equal(before[k])}
    assert {k.split('.')[2] for k in trained if k.startswith('head.')} == {
        str(space[i].end_anchor) for i in sampled
    }
    assert runner.model.backbone.stitching_initialized
    assert {k for k in hub.log_scalars if k.endswith('top1')} == {
        f'val/stitch_{i}/accuracy/top1' for i in (0, 1)
    }


@pytest.mark.parametrize('stitch_id', [0, 1, 2, 5])
def test_an_exported_stitch_holds_one_head(cfg, randomise, stitch_id):
    model = randomised(cfg, randomise)
    set_stitch(model, stitch_id)
    exported, single = single_stitch(cfg, model, stitch_id)
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert_close(single(images), model(images), rtol=1e-5, atol=1e-5)
    end = model.backbone.space[stitch_id].end_anchor
    assert [bool(h) for h in exported.model.head.anchor_heads] == [end == 0, end == 1]
    params = sum(p.numel() for p in single.parameters())
    assert params == cost_table(model)[stitch_id].params


def test_labels_that_the_head_has_no_class_for_are_refused(cfg, images):
    (images / 'train.txt').write_text('ant/0.png 0\nbee/0.png 3\n')
    cfg.train_dataloader.dataset.update(
        ann_file='train.txt', metainfo=dict(classes=CLASSES)
    )
    with pytest.raises(ValueError, match=r'=\[3\]; .* 0 to 2 in .*bee/0.png'):
        Runner.from_cfg(cfg).train()


def test_pictures_of_all_predictions(cfg, randomise, images, tmp_path):
    shown, settings = tmp_path / 'shown', dict(stitches=[0, 5], limit=6)
    model = randomised(cfg, randomise)
    runner_of(cfg, model, show_dir=str(shown), **settings).test()
    files = sorted(str(p.relative_to(shown)) for p in shown.rglob('*.png'))
    assert files == sorted(
        f'stitch_{i}/{name}/{n}.png' for i in (0, 5) for name in CLASSES for n in (0, 2)
    )
    drawn = cv2.imread(str(shown / 'stitch_5/bee/2.png'))
    source = cv2.resize(cv2.imread(str(images / 'val/bee/2.png')), (256, 256))
    # Text above, the image below.
    assert drawn.shape == source.shape
    assert np.abs(drawn[150:240].astype(int) - source[150:240]).mean() < 5
    assert np.abs(drawn[:60].astype(int) - source[:60]).mean() > 5


@pytest.fixture
def model(cfg, randomise, tmp_path):
    """A model of init_model."""
    torch.save(dict(state_dict=randomised(cfg, randomise).state_dict()), tmp_path / 'w')
    cfg.test_dataloader.dataset.metainfo = dict(classes=CLASSES)
    return init_model(cfg, tmp_path / 'w', device='cpu')


def test_inferring_files_arrays_and_folders(model, images):
    inferencer = init_inferencer(model)
    files = sorted((images / 'val/cow').glob('*.png'))
    arrays = [cv2.imread(str(f)) for f in files]
    pixels = torch.from_numpy(np.stack(arrays)[..., ::-1].copy()).permute(0, 3, 1, 2)
    for stitch_id in (1, 0, 7):
        set_stitch(model, stitch_id)
        with torch.no_grad():
            wanted = model((pixels.float() - MEAN) / STD).softmax(1)
        names = [CLASSES[i] for i in wanted.argmax(1)]
        for inputs in (images / 'val/cow', [str(f) for f in files], arrays):
            found = inferencer(inputs, batch_size=3)
            got = torch.from_numpy(np.stack([f['pred_scores'] for f in found]))
            assert_close(got, wanted, rtol=1e-4, atol=1e-5)
            assert [f['pred_class'] for f in found] == names


def test_painting_writes_the_class_on_the_image(model):
    image = np.full((300, 400, 3), (30, 90, 200), np.uint8)
    painted = draw_prediction(init_inferencer(model), image)
    assert painted.shape == image.shape
    changed = np.abs(painted.astype(int) - image).max(axis=2) > 8
    # A box with text in the upper left corner, nothing elsewhere.
    assert changed[:60, :150].mean() > 0.2
    assert not changed[150:].any()


def test_every_format_of_an_export_predicts_the_same(cfg, randomise, tmp_path):
    pytest.importorskip('onnxruntime')
    model = randomised(cfg, randomise)
    exporter = StitchExporter(cfg, model, tmp_path / 'export')
    # Its own comparison of predictions raises if they differ.
    manifest = exporter.export_stitch(6, list(FORMATS))
    assert manifest['compared_on'] == '2 test images'
    images = 255 * torch.rand(3, 3, 64, 64)
    with torch.no_grad():
        wanted = model((images - MEAN) / STD)
    got = run_onnx(tmp_path / 'export/stitch_6.onnx', images)
    assert_close(got, wanted, rtol=1e-4, atol=1e-4)
