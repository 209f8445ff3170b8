"""A few images go through all parts of a test before anything that takes long."""

import json
from copy import deepcopy

import cv2
import numpy as np
import pytest
import torch
from mmengine.runner import Runner
from trained_toys import write_trained

from snnet_mm.inference.init_model import init_model
from snnet_mm.training import run, try_test
from snnet_mm.training.trial import try_images
from snnet_mm.utils import load_config

LOAD, PACK = dict(type='LoadImageFromFile'), dict(type='PackSegInputs')
LABELLED = [LOAD, dict(type='LoadAnnotations'), PACK]


@pytest.fixture(scope='module')
def networks(tmp_path_factory):
    """Config and model of each task, built once."""
    found = {}

    def network(task):
        if task not in found:
            files = write_trained(task, tmp_path_factory.mktemp(task))
            found[task] = load_config(files[0]), init_model(*files, device='cpu')
        cfg, model = found[task]
        return deepcopy(cfg), model

    return network


@pytest.fixture
def of_files(networks, tmp_path):
    """The segmentation network, tested on four files of two sizes."""
    cfg, model = networks('seg')
    for i, height in enumerate((64, 64, 64, 48)):
        for folder, shape in (('images', (height, 64, 3)), ('masks', (height, 64))):
            (tmp_path / folder).mkdir(exist_ok=True)
            pixels = np.full(shape, i % 3, np.uint8)
            cv2.imwrite(str(tmp_path / folder / f'{i}.png'), pixels)
    names = list('abcde')
    cfg.test_dataloader.dataset = dict(
        type='BaseSegDataset',
        data_root=str(tmp_path),
        data_prefix=dict(img_path='images', seg_map_path='masks'),
        img_suffix='.png',
        metainfo=dict(classes=names, palette=[[i] * 3 for i in range(5)]),
        pipeline=LABELLED,
    )
    cfg.test_dataloader.batch_size = 1
    model.dataset_meta = {}
    return cfg, model


@pytest.mark.parametrize(
    'task', ['seg', 'depth', 'cls', pytest.param('det', marks=pytest.mark.ops)]
)
def test_what_works_passes_and_nothing_changes(networks, task):
    cfg, model = networks(task)
    cfg.visualizer.vis_backends.append(dict(type='WandbVisBackend'))  # not installed
    before, state = cfg.to_dict(), torch.get_rng_state()
    weights = {k: v.clone() for k, v in model.state_dict().items()}
    model.train()
    try_test(cfg, model)
    assert model.training
    model.eval()
    assert cfg.to_dict() == before
    assert torch.get_rng_state().equal(state)
    assert all(v.equal(weights[k]) for k, v in model.state_dict().items())


def test_metrics_of_a_runner_stay_empty(networks, tmp_path):
    cfg, _ = networks('seg')
    cfg.work_dir = str(tmp_path)
    runner = Runner.from_cfg(cfg)
    try_images(runner)
    assert runner.test_evaluator.metrics[0].results == []
    whole = runner.test()
    assert whole == Runner.from_cfg(cfg).test()


def lose_labels(cfg):
    cfg.test_dataloader.dataset.pipeline = [LOAD, PACK]


def lose_masks(cfg):
    del cfg.test_dataloader.dataset.data_prefix['seg_map_path']


def take_batches(cfg):
    """Of which the first that a loader gives is of one size."""
    cfg.test_dataloader.batch_size = 2


def only_format(cfg):
    cfg.test_evaluator.update(format_only=True, output_dir='nowhere')


def rename_in_order(cfg):
    cfg.test_dataloader.dataset.metainfo.classes = list('abced')


def lose_a_class(cfg):
    names = dict(classes=list('abcd'), palette=[[i] * 3 for i in range(4)])
    cfg.test_dataloader.dataset.metainfo = names


def take_four_channels(cfg):
    data = cfg.test_dataloader.dataset
    cv2.imwrite(f'{data.data_root}/images/0.png', np.zeros((64, 64, 4), np.uint8))
    data.pipeline = [dict(LOAD, color_type='unchanged'), *LABELLED[1:]]


def fail_in_the_pipeline(cfg):
    crop = dict(type='CenterCrop', crop_size='large')
    cfg.test_dataloader.dataset.pipeline = [LOAD, crop, *LABELLED[1:]]


def draw_with_unknown_settings(cfg):
    cfg.visualizer.update(type='SegLocalVisualizer', alpha=-3)


def take_an_unknown_hook(cfg):
    cfg.custom_hooks = [dict(type='NoSuchHook')]


def lose_the_evaluator(cfg):
    cfg.test_evaluator = None


def lose_images(cfg):
    cfg.test_dataloader.dataset.img_suffix = '.tif'


@pytest.mark.parametrize(
    ('change', 'words'),
    [
        (
            lose_labels,
            "metrics of the test, which need labels, .*'gt_sem_seg'.*test_evaluator",
        ),
        (lose_masks, r'images/0.png, raised KeyError: .*seg_map_path.*dataset.pipe'),
        (take_batches, '=2 is invalid.*test_dataloader.batch_size'),
        (only_format, 'format_only=True is .*test_evaluator.format_only'),
        (rename_in_order, 'order of the training.*test_dataloader.dataset.metainfo'),
        (lose_a_class, '=5 is .*4, .*test set.*num_classes'),
        (
            take_four_channels,
            r'model, tested on images of shape \(4, 64, 64\).*: model, test',
        ),
        (fail_in_the_pipeline, 'CenterCrop cannot be .*config key: CenterCrop'),
        (
            draw_with_unknown_settings,
            'the visualizer of the test .*visualizer, test_data',
        ),
        (take_an_unknown_hook, 'NoSuchHook'),
        (lose_the_evaluator, 'test_evaluator=None|None is .*test_evaluator'),
        (lose_images, 'BaseSegDataset cannot be built'),
    ],
)
def test_what_would_fail_late_is_named_by_its_key(of_files, change, words):
    cfg, model = of_files
    model.dataset_meta = dict(classes=list('abcde'))
    try_test(cfg, model)
    change(cfg)
    with pytest.raises(ValueError, match=words):
        try_test(cfg, model)


@pytest.mark.parametrize('workers', [0, 1])
@pytest.mark.parametrize('damage', [b'', b'\x89PNG\r\n'])
def test_test_broken_image_is_named(of_files, tmp_path, damage, workers):
    cfg, model = of_files
    (tmp_path / 'images/2.png').write_bytes(damage)
    loader = dict(num_workers=workers, persistent_workers=False)
    cfg.test_dataloader.update(loader)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'a.pth')
    words = f'for {tmp_path}/images/2.png, raised \\w.*test_dataloader.dataset.pipeline'
    with pytest.raises(ValueError, match=words):
        run.test(cfg, tmp_path / 'a.pth', tmp_path / 'work')


def write_coco(path, names, first=0, category='object'):
    images = [
        dict(id=first + i, file_name=name, height=64, width=64)
        for i, name in enumerate(names)
    ]
    box = dict(image_id=first, bbox=[4, 4, 50, 50], area=2500, iscrowd=0, category_id=1)
    for name in names:
        cv2.imwrite(str(path.with_name(name)), np.zeros((64, 64, 3), np.uint8))
    content = dict(images=images, annotations=[dict(box, id=1)])
    content['categories'] = [dict(id=1, name=category)]
    path.write_text(json.dumps(content))
    return str(path)


@pytest.mark.ops
@pytest.mark.parametrize('first', [0, 9])  # image ids may be equal in both files
def test_one_annotation_file_for_two_data_sets(networks, tmp_path, first):
    cfg, model = networks('det')
    files = [
        write_coco(tmp_path / 'a.json', ['a.png', 'b.png']),
        write_coco(tmp_path / 'b.json', ['c.png'], first),
    ]
    resize = dict(type='Resize', scale=(64, 64))
    pipeline = [LOAD, resize, dict(type='LoadAnnotations', with_bbox=True)]
    pipeline.append(dict(type='PackDetInputs'))
    data = dict(type='CocoDataset', metainfo=dict(classes=('object',)))
    data |= dict(data_prefix=dict(img=str(tmp_path)), pipeline=pipeline, test_mode=True)
    metrics = [dict(type='CocoMetric', metric='bbox', ann_file=f) for f in files]
    parts = [dict(data, ann_file=file) for file in files]
    cfg.test_dataloader.dataset = dict(type='ConcatDataset', datasets=parts)
    cfg.test_evaluator = metrics[0]
    with pytest.raises(ValueError, match='lack .*c.png; .*MultiDatasetsEvaluator'):
        try_test(cfg, model)
    several = dict(type='MultiDatasetsEvaluator', metrics=metrics)
    cfg.test_evaluator = dict(several, dataset_prefixes=['a', 'b'])
    try_test(cfg, model)
    cfg.test_evaluator = dict(several, dataset_prefixes=['a'])
    with pytest.raises(ValueError, match='one for each of 2 .*dataset_prefixes'):
        try_test(cfg, model)
    cfg.test_dataloader.dataset = dict(parts[0], metainfo=dict(classes=('Object',)))
    cfg.test_evaluator = metrics[0]
    with pytest.raises(ValueError, match="'Object'.*a.json, which has 0 .*classes"):
        try_test(cfg, model)
