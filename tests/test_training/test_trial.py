"""A few images go through all parts of a test before anything that takes long."""

import json
from contextlib import nullcontext
from copy import deepcopy

import cv2
import numpy as np
import pytest
import torch
from mmengine.runner import Runner
from small import write_trained

from snnet_mm.models.init_model import init_model
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
    """The segmentation network, tested on four files of two sizes, with alpha."""
    cfg, model = networks('seg')
    for i, height in enumerate((64, 64, 64, 48)):
        for folder, shape in (('images', (height, 64, 4)), ('masks', (height, 64))):
            (tmp_path / folder).mkdir(exist_ok=True)
            pixels = np.full(shape, i % 3, np.uint8)
            cv2.imwrite(str(tmp_path / folder / f'{i}.png'), pixels)
    cfg.test_dataloader.dataset = dict(
        type='BaseSegDataset',
        data_root=str(tmp_path),
        data_prefix=dict(img_path='images', seg_map_path='masks'),
        img_suffix='.png',
        metainfo=dict(classes=list('abcde'), palette=[[i] * 3 for i in range(5)]),
        pipeline=LABELLED,
    )
    cfg.test_dataloader.batch_size = 1
    model.dataset_meta = dict(classes=list('abcde'))
    return cfg, model


@pytest.mark.parametrize(
    'task', ['seg', 'depth', 'cls', pytest.param('det', marks=pytest.mark.ops)]
)
def test_try_test_changes_nothing(networks, task):
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


def test_try_images_leaves_the_metrics_of_a_runner_empty(networks, tmp_path):
    cfg, _ = networks('seg')
    cfg.work_dir = str(tmp_path)
    runner = Runner.from_cfg(cfg)
    try_images(runner)
    assert runner.test_evaluator.metrics[0].results == []
    assert runner.test() == Runner.from_cfg(cfg).test()


@pytest.mark.ops
def test_try_test_names_classes_that_annotations_lack(networks, tmp_path):
    cfg, model = networks('det')
    image = dict(id=0, file_name='a.png', height=64, width=64)
    content = dict(images=[image], annotations=[])
    content['categories'] = [dict(id=1, name='object')]
    (tmp_path / 'a.json').write_text(json.dumps(content))
    cfg.test_dataloader.dataset = dict(
        type='CocoDataset',
        metainfo=dict(classes=('Object',)),
        ann_file=str(tmp_path / 'a.json'),
        data_prefix=dict(img=str(tmp_path)),
        pipeline=[LOAD, dict(type='PackDetInputs')],
        test_mode=True,
    )
    with pytest.raises(ValueError, match=r"'Object'.*test_dataloader.*classes"):
        try_test(cfg, model)


DATA = 'test_dataloader.dataset'
FOUR = dict(classes=list('abcd'), palette=[[i] * 3 for i in range(4)])
CROP = dict(type='CenterCrop', crop_size='large')
NO_MASKS = dict(_delete_=True, img_path='images')
SAVING = dict(format_only=True, output_dir='nowhere')


@pytest.mark.parametrize(
    ('changes', 'words'),
    [
        ({f'{DATA}.pipeline': [LOAD, PACK]}, 'test_evaluator'),
        ({f'{DATA}.data_prefix': NO_MASKS}, r'images/0\.png.*dataset\.pipeline'),
        # The first two images have one size.
        ({'test_dataloader.batch_size': 2}, r'test_dataloader\.batch_size'),
        (dict(test_evaluator=SAVING), 'test_evaluator.format_only'),
        ({f'{DATA}.metainfo.classes': list('abced')}, 'dataset.metainfo'),
        ({f'{DATA}.metainfo': FOUR}, 'num_classes'),
        ({f'{DATA}.pipeline.0.color_type': 'unchanged'}, 'model, test'),
        ({f'{DATA}.pipeline': [LOAD, CROP, *LABELLED[1:]]}, 'test_dataloader'),
        (dict(custom_hooks=[dict(type='NoSuchHook')]), 'NoSuchHook'),
        (dict(test_evaluator=None), 'test_evaluator'),
        ({f'{DATA}.img_suffix': '.tif'}, 'test_dataloader'),
    ],
)
def test_try_test_names_key_of_what_fails_late(
    of_files, tmp_path, monkeypatch, changes, words
):
    monkeypatch.chdir(tmp_path)  # IoUMetric makes its folder
    cfg, model = of_files
    cfg.merge_from_dict(changes)
    with pytest.raises(ValueError, match=words):
        try_test(cfg, model)


def test_try_test_out_of_memory_names_batch(networks, monkeypatch):
    def exhausted(data):
        raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2 GiB. GPU')

    cfg, model = networks('seg')
    cfg.test_dataloader.batch_size = 3
    monkeypatch.setattr(model, 'test_step', exhausted)
    words = "^device='cpu' is invalid: expected one with more free memory, smaller "
    words += 'images or a smaller batch: batches of up to 3: CUDA out of memory'
    with pytest.raises(ValueError, match=words):
        try_test(cfg, model)


@pytest.mark.parametrize(('damage', 'workers'), [(b'', 0), (b'\x89PNG\r\n', 1)])
def test_test_names_a_broken_image(of_files, tmp_path, damage, workers):
    cfg, model = of_files
    try_test(cfg, model)  # not among the images that are tried
    (tmp_path / 'images/2.png').write_bytes(damage)
    cfg.test_dataloader.update(num_workers=workers, persistent_workers=False)
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'a.pth')
    with pytest.raises(ValueError, match=r'images/2\.png.*dataset\.pipeline'):
        run.test(cfg, tmp_path / 'a.pth', tmp_path / 'work')


LISTS = dict(type='SingleLabelMetric', items=('f1-score',), average=None)
TOP = dict(type='Accuracy', topk=(1, 5))


@pytest.mark.parametrize(
    ('metrics', 'words'),
    [
        (LISTS, r"\['SingleLabelMetric'\] is invalid: expected a metric with a number"),
        (TOP, r'Top-5 accuracy is unavailable.*test_evaluator'),
        ([LISTS, TOP], r'Top-5 accuracy'),
        (dict(type='ConfusionMatrix'), r"\['ConfusionMatrix'\].*a number"),
        ([LISTS, dict(TOP, topk=(1, 2))], None),
        (dict(LISTS, average='macro'), None),
    ],
)
def test_try_test_metrics_that_cannot_rank(networks, metrics, words):
    cfg, model = networks('cls')
    cfg.test_evaluator = metrics
    with pytest.raises(ValueError, match=words) if words else nullcontext():
        try_test(cfg, model)


@pytest.mark.parametrize('phase', ['train', 'test'])
def test_metrics_that_cannot_be_computed_come_first(networks, tmp_path, phase):
    """Before the first iteration of a training, and before a test."""
    cfg, model = networks('cls')
    torch.save(dict(state_dict=model.state_dict()), tmp_path / 'a.pth')
    cfg.val_evaluator = cfg.test_evaluator = TOP
    given = [tmp_path / 'a.pth'] * (phase == 'test')
    with pytest.raises(ValueError, match='Top-5 accuracy is unavailable'):
        getattr(run, phase)(cfg, *given, tmp_path / 'work')
    log = next((tmp_path / 'work').glob('*/*.log')).read_text()
    assert 'Epoch(' not in log
    assert 'Iter(' not in log
