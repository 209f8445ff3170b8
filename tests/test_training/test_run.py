"""The two doors: train and test."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from mmengine.config import Config
from mmengine.runner import Runner
from mmseg.models import EncoderDecoder
from small import disturb, small, write_trained
from torch import nn

from snnet_mm.elastic import elastic_config, elastic_model
from snnet_mm.models import explaining_out_of_memory, set_stitch
from snnet_mm.models.init_model import init_model
from snnet_mm.stitching import StitchTable
from snnet_mm.training import run
from snnet_mm.training.config import set_augmentation
from snnet_mm.utils import load_config, work_dir_lock


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    return write_trained('seg', tmp_path_factory.mktemp('network'))


@pytest.fixture
def cfg(files, tmp_path):
    """Config of a network that trains for an iteration."""
    cfg = load_config(files[0], dict(work_dir=str(tmp_path / 'work')))
    cfg.train_cfg.max_iters = cfg.train_cfg.val_interval = 1
    return cfg


def test_train_terminal_shows_what_matters(tmp_path, capsys):
    """The log file has all."""
    cfg = small('tiny')
    cfg.train_cfg.max_iters, cfg.log_level = 2, 'INFO'
    cfg.default_hooks.logger.interval = 1
    cfg.model.backbone.anchors[0].frozen_stages = 2
    head, path = cfg.model.decode_head, str(tmp_path / 'head.pth')
    torch.save({'decode_head.conv_seg.bias': torch.zeros(head.num_classes)}, path)
    head.init_cfg = dict(type='Pretrained', checkpoint=path, prefix='decode_head.')
    runner = run.train(cfg, tmp_path)
    printed = capsys.readouterr().out
    written = next(Path(runner.log_dir).glob('*.log')).read_text()
    hidden = 'Hooks will be executed', 'requires_grad=False', 'prefix is not set'
    for words in (*hidden, 'will be deprecated', 'paramwise_options'):
        assert words in written
        assert words not in printed
    lines = printed.splitlines()
    assert len(lines) < 40  # mmengine alone prints hundreds
    assert f'Long log: {runner.log_dir}' in lines
    begin = 'Fitted ', 'Batch of 2: ', 'Iter(train) [2/2] ', 'Saving checkpoint at 2 '
    for words in (*begin, 'stitch_1/mIoU: '):
        assert words in printed
    warned = [line for line in lines if 'WARNING' in line]
    # Of the head, the anchors, and the small batch.
    known = 'do not match exactly', 'random weights', 'is made for batches of 16'
    assert warned
    assert [x for x in warned if not any(words in x for words in known)] == []


def test_train_scale_lr_scales_with_the_batch(tmp_path):
    cfg = small('tiny')
    rate = cfg.optim_wrapper.optimizer.lr
    cfg.auto_scale_lr = dict(base_batch_size=4 * cfg.train_dataloader.batch_size)
    runner = run.train(cfg, tmp_path, scale_lr=True)
    groups = runner.optim_wrapper.optimizer.param_groups
    assert max(group['lr'] for group in groups) == pytest.approx(rate / 4)


def test_train_refuses_to_compile_stitches(cfg, tmp_path):
    """But not mm's own networks: those fail later here, at a folder that is a file."""
    stitched = small('tiny')
    stitched.compile = cfg.compile = True
    with pytest.raises(ValueError, match='compile=True is invalid.*compile again'):
        run.train(stitched, tmp_path)
    (tmp_path / 'file').touch()
    for hooks in (cfg.default_hooks, None):
        cfg.default_hooks = hooks
        with pytest.raises(ValueError, match='cannot be written to'):
            run.train(cfg, tmp_path / 'file')


def test_test_config_in_work_directory_stays(files, tmp_path):
    """As ``elastic.py``, which is in the folder that tests of it write to."""
    path = tmp_path / 'elastic.py'
    path.write_bytes(files[0].read_bytes())
    options = {'work_dir': str(tmp_path), 'custom': 'an option of one run'}
    run.test(path, files[1], None, options)
    assert path.read_bytes() == files[0].read_bytes()
    assert 'an option of one run' in (tmp_path / 'elastic_test.py').read_text()


PRETRAINED = dict(type='Pretrained', checkpoint='no.pth')


@pytest.mark.parametrize(
    ('setting', 'words'),
    [
        (dict(load_from='none.pth'), r'none\.pth .*load_from'),
        ({'model.backbone.init_cfg': PRETRAINED}, r'no\.pth .*init_cfg\.checkpoint'),
        ({'val_evaluator.ann_file': 'none.json'}, 'val_evaluator'),
    ],
)
def test_train_names_missing_files_first(cfg, setting, words):
    """Before anything is built."""
    cfg.merge_from_dict(setting)
    with pytest.raises(ValueError, match=words):
        run.train(cfg)
    assert not [*Path(cfg.work_dir).glob('2*')]  # mmengine's folder of a run


def test_train_refuses_elastic_backbone(cfg):
    """It would train the network alone, from random weights."""
    cfg.model.backbone = dict(type='ElasticBackbone', anchors=[cfg.model.backbone])
    wrapped = Config(dict(cfg.to_dict(), model=dict(type='A', model=cfg.model)))
    for each in (cfg, wrapped):
        with pytest.raises(ValueError, match="'ElasticBackbone'"):
            run.train(each)


@pytest.mark.parametrize('stitched', [True, False])
def test_train_out_of_memory_names_stitch_and_batch(
    cfg, tmp_path, monkeypatch, stitched
):
    def exhausted(*args, **kwargs):
        raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2 GiB. GPU')

    cfg = small('tiny') if stitched else cfg
    if stitched:
        ids = dict(type='UniformSampler', ids=[0])
        cfg.default_hooks.stitch_sampling.sampler = ids
    cfg.train_dataloader.batch_size = 2
    monkeypatch.setattr(EncoderDecoder, 'loss', exhausted)
    words = r'smaller batch: (stitch \d, )?batches of up to 2: CUDA out of memory\. '
    words += r'Tried to allocate 2 GiB \(option: --device\)$'
    with pytest.raises(ValueError, match=words) as caught:
        run.train(cfg, tmp_path)
    assert ('stitch 0, ' in str(caught.value)) == stitched


def test_out_of_memory_of_a_model_that_is_built_later_is_torchs():
    with (
        pytest.raises(torch.OutOfMemoryError, match='^CUDA$'),
        explaining_out_of_memory(dict(type='EncoderDecoder'), 2),
    ):
        raise torch.OutOfMemoryError('CUDA')


def test_train_locks_folder_and_leaves_config(cfg):
    cfg.optim_wrapper.type = 'OptimWrapper'
    before = cfg.to_dict()
    Path(cfg.work_dir).mkdir(parents=True, exist_ok=True)
    with (
        work_dir_lock(cfg.work_dir),
        pytest.raises(ValueError, match='without another training'),
    ):
        run.train(cfg, iters=2)
    runner = run.train(cfg, iters=2)
    assert (runner.iter, cfg.to_dict()) == (2, before)


def test_test_built_model_has_no_augmentation(cfg):
    with pytest.raises(ValueError, match='tta=True'):
        run.test(cfg, nn.Identity(), tta=True)


def augmented(cfg, task):
    """Give a toy config a flip to average, which segmentors do not have by default."""
    cfg.log_level = 'ERROR'
    if task == 'det':  # mmdet merges boxes only
        for part in ('mask_head', 'mask_roi_extractor'):
            del cfg.model.roi_head[part]
        cfg.test_evaluator.metric = 'bbox'
    if task == 'seg':
        *steps, pack = cfg.test_dataloader.dataset.pipeline
        flips = [dict(type='RandomFlip', prob=prob) for prob in (0.0, 1.0)]
        step = dict(type='TestTimeAug', transforms=[flips, [pack]])
        cfg.tta_model, cfg.tta_pipeline = dict(type='SegTTAModel'), [*steps, step]
    return cfg


def stock_test(cfg, checkpoint, folder, stitch=None):
    """The metrics by mm's own runner, of a config with its test-time augmentation."""
    cfg = deepcopy(cfg)
    cfg.update(work_dir=str(folder), load_from=str(checkpoint))
    cfg.test_cfg = dict(type='TestLoop')
    set_augmentation(cfg)
    runner = Runner.from_cfg(cfg)
    if stitch is not None:
        set_stitch(runner.model, stitch)
    return {name: pytest.approx(float(x)) for name, x in runner.test().items()}


TASKS = ['seg', 'cls', pytest.param('det', marks=pytest.mark.ops)]


@pytest.mark.parametrize('task', TASKS)
def test_test_augmented_as_mm_does(tmp_path, task):
    """A plain network, and the same as stitch 0 of its elastic version."""
    config, checkpoint = write_trained(task, tmp_path)
    cfg = augmented(load_config(config), task)
    wanted = stock_test(cfg, checkpoint, tmp_path / 'stock')
    run.test(cfg, checkpoint, tmp_path / 'plain', tta=True)
    (path,) = tmp_path.glob('plain/*/results.json')
    assert StitchTable.read(path)[0].metrics == wanted
    network = init_model(cfg, checkpoint, device='cpu')
    model = elastic_model(network, chains := ['1:0/0'])
    meta = dict(dataset_meta=network.dataset_meta)
    torch.save(dict(meta=meta, state_dict=model.state_dict()), tmp_path / 'elastic.pth')
    given = elastic_config(cfg, network, chains), tmp_path / 'elastic.pth'
    table = run.test(*given, tmp_path / 'elastic', tta=True).test_loop.table
    assert table[0].metrics == wanted
    assert [*table] == [0, 1]


@pytest.mark.parametrize('task', TASKS)
def test_test_augmented_stitches_as_mm_does(tmp_path, task):
    cfg = augmented(small(task, tmp_path), task)
    cfg.default_hooks.stitch_statistics.num_images = 0
    torch.manual_seed(0)
    model = disturb(init_model(cfg, None, device='cpu'))
    torch.save(dict(state_dict=model.state_dict()), path := tmp_path / 'a.pth')
    runner = run.test(cfg, path, tmp_path / 'own', tta=True, stitches='0,1,4')
    for stitch in (0, 1, 4):
        wanted = stock_test(cfg, path, tmp_path / f'stock{stitch}', stitch)
        assert runner.test_loop.table[stitch].metrics == wanted
