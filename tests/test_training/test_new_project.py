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
    write_yolo,
)
from mmengine.config import Config
from mmengine.registry import MODELS
from mmengine.runner import Runner

from snnet_mm.datasets.folders import read_folder
from snnet_mm.datasets.kept import count_kept
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
        (TINY, 'PlainViT'),
        ('deit_tiny_distilled_patch16_224', 'TimmAnchor'),
        ('eva02_tiny_patch14_224', 'TimmAnchor'),
        ('vit_base_patch16_siglip_224', 'PlainViT'),  # no cls token
        ('vit_base_patch16_clip_224', 'TimmAnchor'),  # a norm before the blocks
        ('vit_small_patch14_reg4_dinov2', 'PlainViT'),
        ('deit3_small_patch16_224', 'PlainViT'),
    ],
)
def test_the_backbone_has_the_maps_of_the_network_in_timm(name, kind, out, monkeypatch):
    narrow = {} if 'eva' in name else dict(embed_dim=48, depth=2, num_heads=3)
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
    'masks': (write_yolo, 3e-4, 'coco/segm_mAP', dict(metric=['bbox', 'segm'])),
}


@pytest.mark.parametrize(
    'task',
    [
        'seg',
        'depth',
        'cls',
        pytest.param('det', marks=OPS),
        pytest.param('masks', marks=[OPS, pytest.mark.slow]),
    ],
)
def test_the_config_trains_and_is_evaluated(task, out, narrow, tmp_path):
    make, rate, metric, evaluator = TASKS[task]
    polygon = ['1 0.1 0.1 0.9 0.1 0.9 0.9'] if task == 'masks' else []
    make(tmp_path / 'data', *polygon)
    kind = 'det' if task == 'masks' else task
    values = write_project(read_folder(tmp_path / 'data', kind), out, TINY, narrow)
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
    total = dict(det=8, masks=8, cls=20, seg=13 * 2400, depth=5 * 2400)
    assert count_kept(cfg).total() == total[task]
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


def test_values(out, narrow, tmp_path):
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
    assert values['backbone']['init_cfg']['checkpoint'] == narrow
    values = write_project(data, out, TINY, force=True)
    assert values['backbone']['init_cfg']['checkpoint'] == f'timm://{TINY}'


@pytest.mark.parametrize(
    ('task', 'shape', 'patch', 'size'),
    [
        ('seg', (360, 480), 14, (196, 252)),
        ('seg', (100, 180), 16, (96, 176)),
        ('depth', (20, 4000), 14, (56, 3164)),
        ('det', (256, 256), 14, (252, 252)),
        ('det', (3000, 4000), 16, (448, 448)),
        ('cls', (64, 64), 14, (70, 70)),
        ('cls', (500, 375), 14, (224, 224)),
    ],
)
def test_sizes(task, shape, patch, size, tmp_path):
    write_masks(tmp_path)
    data = read_folder(tmp_path, 'seg')
    data.task = task
    data.sizes.clear()
    data.sizes[shape] = 3
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
def test_wrong_arguments(settings, message, out, tmp_path):
    write_masks(tmp_path)
    with pytest.raises(ValueError, match=message):
        write_project(
            read_folder(tmp_path, 'seg'), **(dict(out=out, backbone=TINY) | settings)
        )
    assert not out.exists()


@pytest.mark.parametrize('name', ['mine.py', 'mine_val.txt'])
def test_existing_files_stay(out, narrow, tmp_path, name):
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


def test_images_and_masks_as_they_are_loaded(out, narrow, tmp_path):
    """Names with a tail, of masks with labels up to 2 and no class."""
    write_masks(tmp_path / 'data', val='')
    for path in list((tmp_path / 'data/masks').rglob('*.png')):
        path.unlink()
        write(path.with_name(f'{path.stem}_L.png'), halves(low=255, high=2))
    data = read_folder(tmp_path / 'data', 'seg', ['a', 'b', 'c'])
    write_project(data, out, TINY, narrow)
    cfg = load_config(out)
    runner = Runner.from_cfg(
        dict(cfg, work_dir=str(tmp_path / 'work'), visualizer=None)
    )
    sample = runner.build_dataloader(cfg.val_dataloader).dataset[0]['data_samples']
    assert sample.gt_sem_seg.data.unique().tolist() == [2, 255]
    assert sample.gt_sem_seg.data.shape == (1, 40, 60)


@pytest.mark.parametrize('task', ['seg', 'depth', 'cls', 'det'])
def test_template_is_a_config_that_inherits_from_the_bases(task, tmp_path):
    text = (new_project.TEMPLATES / f'{task}.py').read_text()
    bases, _ = new_project._template(task, dict(size=None, batch_size=4))
    schedule = (new_project.TEMPLATES / 'schedule.py').read_text()
    found = text.partition('_base_ = ')[2].partition(']\n')[2]
    (tmp_path / 'whole.py').write_text(f'_base_ = {bases}\n{found}\n{schedule}')
    cfg = Config.fromfile(tmp_path / 'whole.py')
    assert cfg.train_cfg == dict(
        type='IterBasedTrainLoop', max_iters=600, val_interval=150
    )
    assert cfg.optim_wrapper.paramwise_cfg.custom_keys == dict(
        backbone=dict(lr_mult=0.03)
    )
    assert cfg.default_hooks.loss_check.type == 'LossCheckHook'
    assert cfg.model.backbone.img_size == cfg.size
