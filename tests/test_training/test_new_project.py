from collections import Counter

import numpy as np
import pytest
import timm
import torch
from labelled_folders import (
    write_classes,
    write_coco,
    write_depth,
    write_masks,
)
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import Runner

from snnet_mm.datasets.folders import read_folder
from snnet_mm.datasets.kept import count_kept
from snnet_mm.datasets.labelled_folder import LabelledFolder
from snnet_mm.training import new_project
from snnet_mm.training.new_project import input_size, write_project
from snnet_mm.utils import load_config

TINY = 'vit_tiny_patch16_224'
OPS = pytest.mark.ops


@pytest.fixture
def out(tmp_path):
    return tmp_path / 'mine' / 'mine.py'


@pytest.fixture
def narrow(monkeypatch, tmp_path):
    """Narrow all ViTs of timm; return a file of random weights."""
    narrow = dict(embed_dim=32, depth=4, num_heads=2)

    def create(name, **kwargs):
        return timm.create_model(name, **narrow, **kwargs)

    monkeypatch.setattr(new_project, 'create_timm_model', create)
    torch.save(create(TINY, num_classes=0).state_dict(), tmp_path / 'vit.pth')
    return str(tmp_path / 'vit.pth')


@pytest.mark.parametrize(
    ('name', 'kind'),
    [
        ('eva02_tiny_patch14_224', 'TimmAnchor'),
        ('vit_base_patch16_siglip_224', 'PlainViT'),  # no cls token
        ('vit_base_patch16_clip_224', 'TimmAnchor'),  # a norm before the blocks
        ('vit_small_patch14_reg4_dinov2', 'PlainViT'),
    ],
)
def test_write_project_backbone_equals_that_of_timm(name, kind, out, monkeypatch):
    narrow = dict(embed_dim=48, depth=2, num_heads=3)
    monkeypatch.setattr(
        new_project,
        'create_timm_model',
        lambda name, **kwargs: timm.create_model(name, **narrow, **kwargs),
    )
    write_masks(out.parent)
    vit = timm.create_model(name, num_classes=0, img_size=224, **narrow).eval()
    with torch.no_grad():
        for parameter in vit.parameters():
            parameter.normal_(std=0.1)
    torch.save(vit.state_dict(), out.with_suffix('.pth'))
    weights = str(out.with_suffix('.pth'))
    backbone = write_project(read_folder(out.parent, 'seg'), out, name, weights)[
        'backbone'
    ]
    assert backbone['type'] == kind
    if kind == 'TimmAnchor':
        backbone['model_args'] = narrow
    anchor = MODELS.build(dict(backbone, img_size=224))
    anchor.init_weights()
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        (found,) = anchor.eval()(images)
        (expected,) = vit.forward_intermediates(images, [-1], intermediates_only=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


TASKS = {
    'seg': (write_masks, 1e-3, 'mIoU', dict(type='IoUMetric', iou_metrics=['mIoU'])),
    'depth': (write_depth, 3e-4, 'RMSE', dict(max_depth=5, min_depth=1e-3)),
    'cls': (write_classes, 1e-3, 'accuracy/top1', dict(type='Accuracy', topk=(1,))),
    'det': (write_coco, 3e-4, 'coco/bbox_mAP', dict(metric=['bbox'])),
    'masks': (write_coco, 3e-4, 'coco/segm_mAP', dict(metric=['bbox', 'segm'])),
}


@pytest.mark.parametrize(
    'task',
    [
        'seg',
        'depth',
        'cls',
        pytest.param('det', marks=[OPS, pytest.mark.slow]),
        pytest.param('masks', marks=[OPS, pytest.mark.slow]),
    ],
)
def test_write_project_config_trains_and_is_evaluated(task, out, narrow, tmp_path):
    make, rate, metric, evaluator = TASKS[task]
    polygon = dict(segmentation=[[6, 4, 36, 4, 36, 24]]) if task == 'masks' else {}
    make(tmp_path / 'data', **polygon)
    data = read_folder(tmp_path / 'data', 'det' if task == 'masks' else task)
    values = write_project(data, out, TINY, narrow)
    assert (values['iters'], values['head_rate']) == (600, rate)
    out.write_text(out.read_text().replace('\niters = 600', '\niters = 2'))
    cfg = load_config(out)
    assert cfg.val_evaluator.to_dict() == cfg.val_evaluator.to_dict() | evaluator
    assert cfg.model.backbone.arch == dict(
        embed_dims=32, depth=4, num_heads=2, mlp_ratio=4
    )
    cfg.work_dir, cfg.visualizer = str(tmp_path / 'work'), None
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.update(num_workers=0, persistent_workers=False, batch_size=2)
    kept = dict(det=[8, 0], masks=[8, 0], cls=[10, 10], depth=[5 * 2400])
    kept['seg'] = [13 * 800, 13 * 1600]
    assert count_kept(data, cfg)[0] == kept[task]
    runner = Runner.from_cfg(cfg)
    runner.train()
    parts = {id(p): n.split('.')[0] for n, p in runner.model.named_parameters()}
    rates = {
        (parts[id(p)], group['initial_lr'])
        for group in runner.optim_wrapper.param_groups
        for p in group['params']
        if id(p) in parts  # mmengine adds one for a rate by default
    }
    others = {*parts.values()} - {'backbone'}
    expected = [('backbone', pytest.approx(3e-5)), *((part, rate) for part in others)]
    assert len(rates) == len(expected)
    assert all(any(r == e for e in expected) for r in rates)
    assert np.isfinite(runner.message_hub.get_scalar(f'val/{metric}').current())
    assert (tmp_path / 'work/iter_2.pth').exists()


def test_write_project_values(out, narrow, tmp_path):
    write_masks(tmp_path / 'data', 'images masks', '')
    data = read_folder(tmp_path / 'data', 'seg')
    values = write_project(data, out, TINY, narrow)
    assert str(new_project.TEMPLATES) not in out.read_text()  # works elsewhere too
    assert Config.fromfile(out).model.decode_head.up_scale == 4  # of the base
    cfg = load_config(out)
    listed = out.with_name('mine_val.txt').read_text().splitlines()
    assert listed == data.splits['val'].annotations
    assert cfg.val_dataloader.dataset.ann_file == str(out.with_name('mine_val.txt'))
    assert cfg.model.decode_head.num_classes == 2
    assert cfg.model.backbone.img_size == (64, 64) == values['size']
    assert values['mean'] == [127.5, 127.5, 127.5]
    assert values['palette'] == [(153, 31, 31), (41, 204, 204)]
    assert cfg.train_cfg.max_iters == cfg.param_scheduler[1].end == 600
    assert cfg.train_cfg.val_interval == 150
    assert cfg.default_hooks.loss_check.type == 'LossCheckHook'
    assert values['backbone']['init_cfg']['checkpoint'] == narrow
    values = write_project(data, out, TINY, force=True)
    assert values['backbone']['init_cfg']['checkpoint'] == f'timm://{TINY}'


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
def test_input_size(task, shape, patch, size, tmp_path):
    data = LabelledFolder(tmp_path)
    data.task, data.sizes = task, Counter({shape: 3})
    assert input_size(data, patch) == size


@pytest.mark.parametrize(
    ('settings', 'message'),
    [
        (dict(backbone='resnet18'), "backbone='resnet18' is invalid"),
        (dict(backbone='vit_tiny_patch16'), 'cannot be built'),
        (dict(weights='vit.pth'), 'vit.pth does not exist .*--weights'),
        (dict(out='mine.txt'), 'mine.txt.*ends in .py'),
    ],
)
def test_write_project_wrong_arguments(settings, message, out, tmp_path):
    write_masks(tmp_path)
    with pytest.raises(ValueError, match=message):
        write_project(
            read_folder(tmp_path, 'seg'), **(dict(out=out, backbone=TINY) | settings)
        )
    assert not out.exists()


@pytest.mark.parametrize('name', ['mine.py', 'mine_val.txt'])
def test_write_project_existing_files_stay(out, narrow, tmp_path, name):
    write_masks(tmp_path / 'data')
    data = read_folder(tmp_path / 'data', 'seg')
    out.parent.mkdir()
    out.with_name(name).write_text('mine = 1')
    with pytest.raises(ValueError, match=rf'{name}.*a new file, or --force'):
        write_project(data, out, TINY, narrow)
    assert [p.name for p in out.parent.iterdir()] == [name]
    assert out.with_name(name).read_text() == 'mine = 1'
    write_project(data, out, TINY, narrow, force=True)
    assert load_config(out).default_scope == 'mmseg'
