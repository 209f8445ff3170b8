from pathlib import Path

import numpy as np
import pytest
import torch
from mmengine.config import Config
from mmengine.registry import init_default_scope
from mmengine.runner import Runner
from mmseg.registry import MODELS
from PIL import Image

from snnet_mm.analysis import cost_table
from snnet_mm.engine import ResourceConstrainedSampler
from snnet_mm.models import find_stitched_backbone

CONFIGS = Path(__file__).parents[2] / 'configs'
ALL = sorted(p for p in CONFIGS.rglob('*.py') if '_base_' not in p.parts)
CAMVID = 'camvid/setr-naive_{}_1xb8-1500_camvid-240x176.py'


def name_of(path):
    return str(path.relative_to(CONFIGS))


def build_on_meta(cfg):
    init_default_scope(cfg.default_scope)
    with torch.device('meta'):
        return MODELS.build(cfg.model)


@pytest.mark.parametrize('path', ALL, ids=name_of)
def test_header_says_what_is_expected(path):
    header = [line for line in path.read_text().splitlines() if line.startswith('#')]
    text = ' '.join(header)
    assert 'batch' in text
    assert 'paper' in text.lower()
    assert 'measured' in text or 'not yet run' in text


@pytest.mark.parametrize('path', ALL, ids=name_of)
def test_config_builds_a_model_and_stands_on_its_own_bases(path):
    assert 'mmseg::' not in path.read_text()
    cfg = Config.fromfile(path)
    model = build_on_meta(cfg)
    classes = cfg.get('metainfo', {}).get('classes')
    if classes:
        assert model.decode_head.num_classes == len(classes)
    assert cfg.randomness.seed == 0


def test_camvid_and_ade20k_stitched_models_have_the_groups_meant():
    for name, sizes in (
        (CAMVID.format('snnetv2-fast-slow'), [1, 6, 6, 6, 6, 6, 1]),
        (
            'setr/setr-naive_snnetv2-deit3-s-l_8xb2-160k_ade20k-512x512.py',
            [1, *[12] * 11, 1],
        ),
    ):
        cfg = Config.fromfile(CONFIGS / name)
        costs = cost_table(build_on_meta(cfg))
        sampler = cfg.custom_hooks[1].sampler
        groups = ResourceConstrainedSampler(costs, step=sampler.step).groups
        assert [len(g) for g in groups] == sizes


@pytest.mark.parametrize('path', sorted(CONFIGS.glob('setr/*.py')), ids=name_of)
def test_ade20k_configs_run_what_the_authors_ran(path):
    cfg = Config.fromfile(path)
    model = build_on_meta(cfg)
    optimizer = Runner.build_optim_wrapper(
        _RunnerStub(model), cfg.optim_wrapper
    ).optimizer
    assert type(optimizer) is torch.optim.SGD
    for group in optimizer.param_groups:
        assert (group['lr'], group['momentum'], group['weight_decay']) == (
            0.01,
            0.9,
            0.0005,
        )
    (schedule,) = cfg.param_scheduler
    assert (schedule.type, schedule.eta_min, schedule.end) == ('PolyLR', 1e-4, 160000)
    assert cfg.train_cfg.max_iters == 160000
    assert cfg.train_dataloader.batch_size == 2
    assert cfg.model.test_cfg == dict(
        mode='slide', crop_size=(512, 512), stride=(341, 341)
    )
    heads = list(model.auxiliary_head)
    assert [h.in_index for h in heads] == [0, 1, 2]
    assert [len(h.up_convs) for h in heads] == [2, 2, 2]
    anchors = [m for m in model.modules() if type(m).__name__ == 'PlainViT']
    for anchor in anchors:
        rates = [block.drop_path.rate for block in anchor.blocks]
        np.testing.assert_allclose(rates, np.linspace(0, 0.1, anchor.depth), atol=1e-7)


class _RunnerStub:
    """The two things of a runner that building an optimizer reads."""

    def __init__(self, model):
        self.model = model


@pytest.fixture
def camvid(tmp_path):
    """Four images in the layout of CamVid."""
    rng = np.random.default_rng(0)
    for split in ('train', 'val'):
        for kind in ('images', 'annotations'):
            (tmp_path / kind / split).mkdir(parents=True)
        for i in range(2):
            image = rng.integers(0, 255, (360, 480, 3), dtype=np.uint8)
            labels = rng.integers(0, 11, (360, 480), dtype=np.uint8)
            Image.fromarray(image).save(tmp_path / 'images' / split / f'{i}.jpg')
            Image.fromarray(labels).save(tmp_path / 'annotations' / split / f'{i}.png')
    return tmp_path


def train_camvid(name, data_root, work_dir, **options):
    cfg = Config.fromfile(CONFIGS / CAMVID.format(name))
    cfg.work_dir, cfg.log_level = str(work_dir / name), 'ERROR'
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        loader.update(num_workers=0, persistent_workers=False)
        loader.dataset.data_root = str(data_root)
    cfg.train_dataloader.batch_size = 2
    cfg.train_cfg.update(max_iters=1, val_interval=1)
    cfg.merge_from_dict(options)
    runner = Runner.from_cfg(cfg)
    runner.train()
    return runner


def test_camvid_from_anchors_to_stitches(camvid, tmp_path):
    anchors = {
        name: train_camvid(f'vit-{name}', camvid, tmp_path) for name in ('fast', 'slow')
    }
    checkpoints = {
        name: str(tmp_path / f'vit-{name}' / 'iter_1.pth') for name in anchors
    }
    options = {
        'model.backbone.anchors.0.init_cfg.checkpoint': checkpoints['fast'],
        'model.backbone.anchors.1.init_cfg.checkpoint': checkpoints['slow'],
        'model.decode_head.init_cfg.checkpoint': checkpoints['slow'],
        # A learning rate of nothing leaves the weights as they were loaded.
        'optim_wrapper.optimizer.lr': 0.0,
    }
    runner = train_camvid('snnetv2-fast-slow', camvid, tmp_path, **options)
    backbone = find_stitched_backbone(runner.model)
    for anchor, trained in zip(backbone.anchors, anchors.values(), strict=True):
        for key, value in trained.model.backbone.state_dict().items():
            assert torch.equal(anchor.state_dict()[key], value), key
    head = anchors['slow'].model.decode_head.state_dict()
    for key, value in runner.model.decode_head.named_parameters():
        assert torch.equal(value, head[key]), key
    metrics = runner.val_loop.run()
    # Stitch 1 is the slow anchor with the slow anchor's head; only the batch norm
    # statistics have seen one batch more.
    assert set(metrics) == {
        f'stitch_{i}/{m}' for i in (0, 1) for m in ('aAcc', 'mIoU', 'mAcc')
    }
