import re
from collections import Counter

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
from mmengine.config import Config
from mmengine.registry import DATASETS, MODELS, init_default_scope
from mmengine.runner import Runner

from snnet_mm.anchors import timm_anchor
from snnet_mm.datasets.folders import ClassFolders, read_folder
from snnet_mm.training import new_project
from snnet_mm.training.new_project import input_size, write_project
from snnet_mm.utils import load_config

TINY = 'vit_tiny_patch16_224'


@pytest.fixture
def out(tmp_path):
    return tmp_path / 'mine' / 'mine.py'


@pytest.fixture
def narrow(monkeypatch, tmp_path):
    """Narrow all ViTs of timm; return a file of random weights."""

    def create(name, **kwargs):
        narrow = dict(embed_dim=32, depth=4, num_heads=2)
        return timm.create_model(name, **narrow, **kwargs)

    for module in (new_project, timm_anchor):
        monkeypatch.setattr(module, 'create_timm_model', create)
    torch.save(create(TINY, num_classes=0).state_dict(), tmp_path / 'vit.pth')
    return str(tmp_path / 'vit.pth')


@pytest.mark.parametrize(
    'name', ['eva02_tiny_patch14_224', 'vit_base_patch16_clip_224']
)
def test_write_project_backbone_equals_that_of_timm(name, out, narrow):
    write_masks(out.parent)
    vit = new_project.create_timm_model(name, num_classes=0, img_size=224).eval()
    torch.save(vit.state_dict(), narrow)
    values = write_project(read_folder(out.parent, 'seg'), out, name, narrow)
    anchor = MODELS.build(dict(values['backbone'], img_size=224))
    anchor.init_weights()
    images = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        (found,) = anchor.eval()(images)
        (expected,) = vit.forward_intermediates(images, [-1], intermediates_only=True)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


OPS = [pytest.mark.ops, pytest.mark.slow]
POLYGON = dict(segmentation=[[6, 4, 36, 4, 36, 24]])
BOTH = dict(metric=['bbox', 'segm'])


@pytest.mark.parametrize(
    ('task', 'make', 'labels', 'rate', 'metric', 'evaluator', 'kept'),
    [
        ('seg', write_masks, {}, 1e-3, 'mIoU', dict(type='IoUMetric'), [10400, 20800]),
        ('depth', write_depth, {}, 3e-4, 'RMSE', dict(max_depth=5), []),
        ('cls', write_classes, {}, 1e-3, 'accuracy/top1', dict(topk=(1,)), [10, 10]),
        pytest.param(
            *('det', write_coco, {}, 3e-4, 'coco/bbox_mAP', dict(metric=['bbox'])),
            [8, 0],
            marks=OPS,
        ),
        pytest.param(
            *('det', write_coco, POLYGON, 3e-4, 'coco/segm_mAP', BOTH),
            [8, 0],
            marks=OPS,
        ),
    ],
)
def test_write_project_config_trains_and_is_evaluated(
    task, make, labels, rate, metric, evaluator, kept, out, narrow, tmp_path
):
    make(tmp_path / 'data', **labels)
    data = read_folder(tmp_path / 'data', task)
    values = write_project(data, out, TINY, narrow)
    assert (values['iters'], values['head_rate']) == (600, rate)
    assigned = Counter(re.findall(r'^(\w+) = ', out.read_text(), re.MULTILINE))
    assert {assigned[name] for name in values} == {1}  # not again by the template
    out.write_text(out.read_text().replace('\niters = 600', '\niters = 2'))
    cfg = load_config(out)
    assert cfg.val_evaluator.to_dict() == cfg.val_evaluator.to_dict() | evaluator
    cfg.work_dir, cfg.visualizer = str(tmp_path / 'work'), None
    for loader in (cfg.train_dataloader, cfg.val_dataloader):
        loader.update(num_workers=0, persistent_workers=False, batch_size=2)
    assert [data.counts[name] for name in data.classes] == kept
    runner = Runner.from_cfg(cfg)
    runner.train()
    parts = {id(p): n.split('.')[0] for n, p in runner.model.named_parameters()}
    rates = {
        (parts[id(p)], round(group['initial_lr'], 8))
        for group in runner.optim_wrapper.param_groups
        for p in group['params']
        if id(p) in parts  # mmengine adds one for a rate by default
    }
    others = {*parts.values()} - {'backbone'}
    assert rates == {('backbone', 3e-5), *((part, rate) for part in others)}
    assert np.isfinite(runner.message_hub.get_scalar(f'val/{metric}').current())
    assert (tmp_path / 'work/iter_2.pth').exists()


def test_write_project_masks_of_0_and_255_are_loaded_as_0_and_1(out, narrow, tmp_path):
    write_masks(tmp_path / 'data', 'images masks', '')
    for path in (tmp_path / 'data/masks').iterdir():
        write(path, halves(high=255))
    data = read_folder(tmp_path / 'data', 'seg', ['background', 'crack'])
    write_project(data, out, TINY, narrow)
    cfg = load_config(out)
    init_default_scope('mmseg')
    for loader in (cfg.train_dataloader, cfg.val_dataloader, cfg.test_dataloader):
        sample = DATASETS.build(loader.dataset)[0]['data_samples']
        assert sample.gt_sem_seg.data.unique().tolist() == [0, 1]
    assert sample.gt_sem_seg.data.float().mean() == pytest.approx(2 / 3)


def test_write_project_values(out, narrow, tmp_path):
    write_masks(tmp_path / 'data', 'images masks', '')
    data = read_folder(tmp_path / 'data', 'seg')
    values = write_project(data, out, TINY, narrow)
    assert str(new_project.TEMPLATES) not in out.read_text()  # works elsewhere too
    assert Config.fromfile(out).model.decode_head.up_scale == 4  # of the base
    cfg = load_config(out)
    listed = out.with_name('mine_val.txt')
    assert listed.read_text().splitlines() == data.splits['val'].annotations
    assert cfg.val_dataloader.dataset.ann_file == str(listed)
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
def test_input_size_by_task_shape_and_patch(task, shape, patch, size, tmp_path):
    data = ClassFolders(tmp_path)
    data.task, data.sizes = task, Counter({shape: 3})
    assert input_size(data, patch) == size


@pytest.mark.parametrize(
    ('settings', 'existing', 'message'),
    [
        (dict(backbone='resnet18'), None, "backbone='resnet18'"),
        (dict(backbone='vit_tiny_patch16'), None, 'cannot be built'),
        (dict(weights='vit.pth'), None, 'vit.pth.*--weights'),
        (dict(out='mine.txt'), None, 'mine.txt.*ends in .py'),
        ({}, 'mine.py', 'mine.py.*--force'),
        ({}, 'mine_val.txt', 'mine_val.txt.*--force'),
    ],
)
def test_write_project_refuses_before_it_writes(
    settings, existing, message, out, tmp_path
):
    write_masks(tmp_path)
    out.parent.mkdir()
    if existing:
        out.with_name(existing).touch()
    data = read_folder(tmp_path, 'seg')
    with pytest.raises(ValueError, match=message):
        write_project(data, **(dict(out=out, backbone=TINY) | settings))
    assert [p.name for p in out.parent.iterdir()] == [existing] * bool(existing)
