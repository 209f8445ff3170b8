import runpy
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from labelled_folders import (
    halves,
    write,
    write_classes,
    write_coco,
    write_depth,
    write_masks,
)
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import Runner

from snnet_mm.datasets.own_data import OwnData
from snnet_mm.tasks.mmseg.eomt import EoMTSegHead
from snnet_mm.utils import load_config

ROOT = Path(__file__).parents[2]
TINY = 'test_vit'  # 6 narrow blocks
POLYGON = dict(segmentation=[[6, 4, 36, 4, 36, 24]])
OPS = [pytest.mark.ops, pytest.mark.slow]


@pytest.fixture
def new_project(run_here, tmp_path):
    """Runs the tool for ``tmp_path/data``; returns its config and what it printed."""

    def run(task, *args, backbone=TINY):
        out = tmp_path / 'mine' / 'mine.py'
        args = '--task', task, '--out', out, '--backbone', backbone, *args
        return out, run_here('new_project.py', tmp_path / 'data', *args)

    return run


@pytest.fixture
def weights(tmp_path):
    torch.save(timm.create_model(TINY, num_classes=0).state_dict(), tmp_path / 'w.pth')
    return tmp_path / 'w.pth'


def test_new_project_prints_findings_and_commands(new_project, tmp_path):
    write_masks(tmp_path / 'data')
    write(tmp_path / 'data/images/train/x.jpg', (40, 60))
    out, printed = new_project('seg', '--classes', 'sky,road', 'car')
    lines = [' '.join(line.split()) for line in printed.splitlines()]
    assert lines[0] == 'Images: 10 train, 3 val; of 60x40 (13 images)'
    assert '│ 0 │ sky │ 10,400 │ 33.3% │' in lines
    assert '│ 2 │ car │ 0 │ 0.0% │' in lines
    assert any('left out' in line and 'x.jpg' in line for line in lines)
    assert lines[-4:] == [
        f'Wrote {out}: 64x64 pixels, 600 iterations',
        'Next:',
        f'python tools/train.py {out}',
        f'python tools/make_elastic.py {out} work_dirs/mine/iter_600.pth',
    ]
    cfg = load_config(out)
    assert cfg.train_dataloader.dataset.metainfo.classes == ['sky', 'road', 'car']
    assert cfg.train_dataloader.dataset.metainfo.palette[0] == (153, 31, 31)
    assert cfg.model.data_preprocessor.mean == [127.5, 127.5, 127.5]
    assert cfg.model.backbone.init_cfg.checkpoint == f'timm://{TINY}'
    with pytest.raises(ValueError, match='mine.py.*--force'):
        new_project('seg')
    new_project('seg', '--force')
    assert load_config(out).model.decode_head.num_classes == 2


def test_new_project_config_follows_its_variables(new_project, tmp_path):
    write_masks(tmp_path / 'data')
    out, _ = new_project('seg')
    text = out.read_text()
    changes = dict(size=('(64, 64)', '(96, 128)'), iters=('600', '40'))
    changes['batch_size'] = '4', '3'
    for name, (old, new) in changes.items():
        assert f'\n{name} = {old}\n' in text
        text = text.replace(f'\n{name} = {old}\n', f'\n{name} = {new}\n')
    out.write_text(text)
    cfg = load_config(out)
    assert cfg.train_dataloader.batch_size == cfg.auto_scale_lr.base_batch_size == 3
    assert (cfg.train_cfg.max_iters, cfg.train_cfg.val_interval) == (40, 10)
    warm_up, decay = cfg.param_scheduler
    assert (warm_up.end, decay.begin, decay.end) == (20, 20, 40)
    model = cfg.model
    sizes = [model.data_preprocessor.size, model.backbone.img_size]
    sizes.append(model.decode_head.vit.img_size)
    loaders = cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader
    for step in (s for loader in loaders for s in loader.dataset.pipeline):
        if 'scale' in step:
            sizes.append(step.scale[::-1])
        if 'crop_size' in step:
            sizes.append(step.crop_size)
    assert sizes == [(96, 128)] * 7


@pytest.mark.parametrize(
    ('task', 'make', 'labels', 'args', 'rates', 'metric'),
    [
        ('seg', write_masks, {}, [], (3e-5, 1e-3), 'mIoU'),
        ('seg', write_masks, {}, ['--head', 'setr'], (3e-5, 1e-3), 'mIoU'),
        ('depth', write_depth, {}, [], (3e-5, 3e-4), 'RMSE'),
        ('cls', write_classes, {}, [], (3e-5, 1e-3), 'accuracy/top1'),
        pytest.param(
            *('det', write_coco, {}, [], (3e-5, 3e-4), 'coco/bbox_mAP'), marks=OPS
        ),
        pytest.param(
            *('det', write_coco, POLYGON, [], (3e-5, 3e-4), 'coco/segm_mAP'), marks=OPS
        ),
    ],
)
def test_new_project_config_trains_and_is_evaluated(
    task, make, labels, args, rates, metric, new_project, weights, tmp_path
):
    make(tmp_path / 'data', **labels)
    out, _ = new_project(task, '--weights', weights, *args)
    out.write_text(out.read_text().replace('\niters = 600', '\niters = 2'))
    cfg = load_config(out)
    cfg.work_dir, cfg.visualizer = str(tmp_path / 'work'), None
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.update(num_workers=0, persistent_workers=False, batch_size=2)
    runner = Runner.from_cfg(cfg)
    runner.train()
    found = {
        round(group['initial_lr'], 8)
        for group in runner.optim_wrapper.param_groups
        if any(p.requires_grad for p in group['params'])
    }
    assert found == {*rates}
    assert np.isfinite(runner.message_hub.get_scalar(f'val/{metric}').current())
    assert (tmp_path / 'work/iter_2.pth').exists()


@pytest.mark.parametrize(
    'name', ['vit_small_patch14_reg4_dinov2', 'deit3_small_patch16_224']
)
def test_new_project_eomt_contains_the_network_of_timm(
    name, new_project, tmp_path, monkeypatch
):
    """The blocks of the backbone, then those of the head, are the whole network."""
    create = timm.create_model
    narrow = dict(embed_dim=32, depth=5, num_heads=2, init_values=1)
    monkeypatch.setattr(
        timm, 'create_model', lambda *a, **kw: create(*a, **narrow, **kw)
    )
    vit = timm.create_model(name, num_classes=0, img_size=112, dynamic_img_size=True)
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.normal_(std=0.3)
    torch.save(vit.state_dict(), tmp_path / 'w.pth')
    write_masks(tmp_path / 'data')
    out, _ = new_project('seg', '--weights', tmp_path / 'w.pth', backbone=name)
    model = load_config(out).model
    model.backbone.img_size = model.decode_head.vit.img_size = 112
    init_default_scope('mmseg')
    backbone = MODELS.build(model.backbone).eval()
    head = MODELS.build(dict(model.decode_head, num_queries=1)).eval()
    assert isinstance(head, EoMTSegHead)
    for part in (backbone, head.vit):
        part.init_weights()
    images = torch.randn(2, 3, 112, 112)
    with torch.no_grad():
        state = backbone.embed(images)
        for part in (backbone, head.vit):
            for i in range(part.depth):
                state = part.run_block(state, i)
        expected = vit.eval().forward_features(images)
    torch.testing.assert_close(state.tokens, expected, rtol=1e-4, atol=1e-4)


def test_new_project_masks_of_0_and_255_are_loaded_as_0_and_1(new_project, tmp_path):
    write_masks(tmp_path / 'data', 'images masks', '')
    for path in (tmp_path / 'data/masks').iterdir():
        write(path, halves(high=255))
    out, _ = new_project('seg', '--classes', 'background', 'crack')
    cfg = load_config(out)
    init_default_scope('mmseg')
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        sample = DATASETS.build(loader.dataset)[0]['data_samples']
        assert sample.gt_sem_seg.data.unique().tolist() == [0, 1]
    assert sample.gt_sem_seg.data.float().mean() == pytest.approx(2 / 3)


def test_new_project_prints_depth_range(new_project, tmp_path):
    write_depth(tmp_path / 'data')
    out, printed = new_project('depth')
    assert 'Depth, if files are in millimetres: 1 to 4.2 m' in printed
    cfg = load_config(out)
    assert cfg.model.decode_head.max_depth == cfg.test_evaluator.max_depth == 5


@pytest.mark.parametrize(
    ('task', 'shape', 'patch', 'size'),
    [
        ('seg', (360, 480), 14, (196, 252)),
        ('depth', (20, 4000), 16, (64, 3168)),
        ('det', (3000, 4000), 16, (448, 448)),
        ('cls', (500, 375), 14, (224, 224)),
        ('cls', (64, 64), 14, (70, 70)),
    ],
)
def test_input_size_by_task_shape_and_patch(task, shape, patch, size):
    input_size = runpy.run_path(str(ROOT / 'tools/new_project.py'))['input_size']
    assert input_size(OwnData(Path(), task, [], sizes=[shape] * 3), patch) == size


@pytest.mark.parametrize(
    ('args', 'backbone', 'existing', 'message'),
    [
        ((), 'resnet18', None, "backbone='resnet18'"),
        ((), 'vit_tiny_patch16', None, 'cannot be built'),
        ((), 'vit_base_patch16_clip_224', None, 'clip.*--head setr'),
        ((), 'eva02_tiny_patch14_224', None, 'eva02.*--head setr'),
        (('--weights', 'vit.pth'), TINY, None, 'vit.pth.*--weights'),
        (('--out', 'mine.txt'), TINY, None, 'mine.txt.*ends in .py'),
        ((), TINY, 'mine_val.txt', 'mine_val.txt.*--force'),
    ],
)
def test_new_project_refuses_before_it_writes(
    args, backbone, existing, message, new_project, tmp_path
):
    write_masks(tmp_path / 'data')
    (tmp_path / 'mine').mkdir()
    if existing:
        (tmp_path / 'mine' / existing).touch()
    with pytest.raises(ValueError, match=message):
        new_project('seg', *args, backbone=backbone)
    assert [p.name for p in (tmp_path / 'mine').iterdir()] == [existing] * bool(
        existing
    )
