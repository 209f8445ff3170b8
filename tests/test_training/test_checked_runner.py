from pathlib import Path

import pytest
from trained_toys import write_trained

from snnet_mm.training import checked_runner
from snnet_mm.utils import load_config


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    return write_trained('seg', tmp_path_factory.mktemp('network'))


@pytest.fixture
def cfg(files, tmp_path):
    return load_config(files[0], dict(work_dir=str(tmp_path / 'work')))


@pytest.mark.parametrize('mode', ['train', 'test'])
def test_a_config_in_its_work_directory_stays_as_it_is(files, tmp_path, mode):
    """As ``elastic.py``, which is in the folder that tests of it write to."""
    path = tmp_path / 'elastic.py'
    path.write_bytes(files[0].read_bytes())
    options = dict(work_dir=str(tmp_path), custom='an option of one run')
    with checked_runner(load_config(path, options), mode):
        pass
    assert (tmp_path / 'training.lock').is_file() is (mode == 'train')
    assert path.read_bytes() == files[0].read_bytes()
    assert 'an option of one run' in (tmp_path / f'elastic_{mode}.py').read_text()


@pytest.mark.parametrize(
    ('key', 'value'),
    [
        ('default_hooks.checkpoint.save_best', ['mIoU', 'mIou']),
        ('custom_hooks', [dict(type='EarlyStoppingHook', monitor='mIou', strict=True)]),
        (
            'param_scheduler',
            [dict(type='ReduceOnPlateauLR', monitor='mIou', rule='greater')],
        ),
    ],
)
def test_metrics_that_no_validation_gives(cfg, key, value):
    cfg.merge_from_dict(
        {key: value, 'train_cfg.max_iters': 1, 'train_cfg.val_interval': 1}
    )
    words = f"'mIou'; allowed: .*'mIoU'.*{key}"
    with pytest.raises(ValueError, match=words), checked_runner(cfg, 'train') as runner:
        runner.train()


@pytest.mark.parametrize(
    ('mode', 'setting', 'words'),
    [
        ('train', dict(load_from='none.pth'), 'none.pth does not exist.*load_from'),
        ('test', dict(load_from='none.pth'), 'none.pth does not exist.*load_from'),
        (
            'train',
            {'model.backbone.init_cfg': dict(type='Pretrained', checkpoint='no.pth')},
            r'no.pth does not exist.*init_cfg.checkpoint',
        ),
        *(
            (mode, {f'{key}_evaluator.ann_file': 'none.json'}, f'{key}_evaluator')
            for mode, key in (('train', 'val'), ('test', 'test'))
        ),
    ],
)
def test_what_is_missing_is_named_before_anything_is_built(cfg, mode, setting, words):
    cfg.merge_from_dict(setting)
    with pytest.raises(ValueError, match=words), checked_runner(cfg, mode):
        pass
    assert not [*Path(cfg.work_dir).glob('2*')]  # mmengine's folder of a run


@pytest.mark.parametrize('size', [1, 2])
def test_a_batch_norm_with_one_value_names_the_batch_size(cfg, size):
    """The last of three images is alone; a network of stride 8 gives maps of 1x1."""
    cfg.train_dataloader.update(batch_size=size)
    cfg.train_dataloader.dataset.num_scenes = 3
    cfg.train_dataloader.sampler = dict(type='DefaultSampler', shuffle=False)
    cfg.train_cfg = dict(type='EpochBasedTrainLoop', max_epochs=1)
    cfg.val_cfg = cfg.val_dataloader = cfg.val_evaluator = None
    head = dict(type='PSPHead', pool_scales=(1,), norm_cfg=dict(type='BN'))
    cfg.model.decode_head = dict(
        head, in_channels=32, in_index=-1, channels=8, num_classes=5
    )
    words = f'batches have {size} image.*batch_size.*drop_last=True'
    with pytest.raises(ValueError, match=words), checked_runner(cfg, 'train') as runner:
        runner.train()
